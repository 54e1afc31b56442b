"""A store's manifest: what the store was made from, and what is in it.

Only the standard library: `./eyas extract` on a finished store answers from here without importing torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import InputError, StoreDamagedError, StoreMismatchError
from pipeline.extract.layers import to_input_numbering
from pipeline.store.durable import write_synced
from pipeline.store.layout import FORMAT, MANIFEST
from pipeline.store.sidecar import finished_units
from pipeline.store.spec import IDENTITY, identity_sha256

Json = dict[str, Any]


def store_identity(  # noqa: PLR0913 - keyword-only: the manifest's fields
    *,
    engine: str,
    dtype: str,
    storage: str,
    hidden_size: int,
    num_layers: int,
    vocab_size: int,
    output_layer_ids: Sequence[int],
    digests: Mapping[str, str],
    settings: Mapping[str, Any],
) -> Json:
    """Everything that must be the same for two runs to write into one store.

    Args:
        engine: its name.
        dtype: of the states and of the computation: "bfloat16", "float16" or "float32".
        storage: how the states lie on the disk, see `pipeline.store.storage`.
        hidden_size: the target's.
        num_layers: the target's decoder layers.
        vocab_size: the target's.
        output_layer_ids: captured layers, in output numbering.
        digests: sha256 in hex of "data", "model", "stack" and "plan".
        settings: what else changes bits of the states, such as tp_size.
    """
    identity = {
        "format": FORMAT,
        "engine": engine,
        "dtype": dtype,
        "storage": storage,
        "hidden_size": hidden_size,
        "num_layers": num_layers,
        "vocab_size": vocab_size,
        "layer_ids": {"output": list(output_layer_ids), "input": list(to_input_numbering(output_layer_ids))},
        "final_norm_applied": False,
        "digests": {name: digests[name] for name in ("data", "model", "stack", "plan")},
        "settings": dict(settings),
    }
    plain: Json = json.loads(json.dumps(identity))  # tuples become lists, as they will be when read back
    return plain


def check_same(store: Path, there: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to continue a store with other data or settings.

    Raises:
        StoreMismatchError: names every field that differs, with both values.
    """
    differing = [f"{name} {old} there, {new} now" for name, old, new in differing_fields(there, now)]
    if differing:
        raise StoreMismatchError(
            f"{store} was made with other data or settings: {'; '.join(differing)}; "
            "use them again, or another --output-dir"
        )


def differing_fields(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Fields of two identities that differ: their names, with both values for people, digests shortened."""
    old, new = (_flat({key: side.get(key) for key in IDENTITY}) for side in (one, two))
    return [
        (name, _short(old.get(name)), _short(new.get(name)))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def write_manifest(store: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest, sealed with a sha256 of its own content, in one step."""
    content = {key: value for key, value in manifest.items() if key != "seal"}
    sealed = {**content, "seal": _seal(content)}
    write_synced(store / MANIFEST, [json.dumps(sealed, indent=2).encode() + b"\n"])


def read_manifest(store: Path) -> Json:
    """The manifest of a store, finished or not.

    Raises:
        InputError: there is no store.
        StoreDamagedError: the manifest is not what was written.
        StoreMismatchError: it is of another format version.
    """
    try:
        manifest = json.loads((store / MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"no store at {store}: there is no {MANIFEST} in it") from error
    except OSError as error:
        raise InputError(f"cannot read {store / MANIFEST}: {error.strerror}") from error
    except ValueError as error:
        raise StoreDamagedError(f"{store / MANIFEST} is damaged ({error}): restore it, or extract again") from error
    if not isinstance(manifest, dict) or manifest.pop("seal", None) != _seal(manifest):
        raise StoreDamagedError(f"{store / MANIFEST} was changed after it was written: restore it, or extract again")
    if manifest.get("format") != FORMAT:
        raise StoreMismatchError(
            f"{store} has store format {manifest.get('format')}, this version reads {FORMAT}: move it away, or "
            "extract into another folder"
        )
    return manifest


def is_complete(store: Path) -> bool:
    """Whether a store is finished and none of its shards is missing or cut off since (their sizes; no hashing).

    Raises:
        StoreDamagedError, StoreMismatchError: as `read_manifest`.
    """
    if not (store / MANIFEST).exists():
        return False
    manifest = read_manifest(store)
    return bool(manifest["status"] == "complete") and _all_there(store, manifest)


def _all_there(store: Path, manifest: Mapping[str, Any]) -> bool:
    return len(finished_units(store, identity_sha256(manifest))) == int(manifest["counts"]["units"])


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        name: leaf for key, inner in value.items() for name, leaf in _flat(inner, f"{prefix}.{key}".lstrip(".")).items()
    }


def _short(value: Any) -> str:
    text = json.dumps(value)
    is_digest = isinstance(value, str) and len(value) == 64
    return f"{value[:12]}…" if is_digest else text
