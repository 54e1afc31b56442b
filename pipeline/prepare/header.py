"""`tokenized.header.json`: what a result was made from, its counts, and whether it still stands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline.errors import InputError
from pipeline.prepare.source import file_sha256

FORMAT = 1
DATA = "tokenized.jsonl"
REJECTED = "rejected.jsonl"
HEADER = "tokenized.header.json"


def read_header(folder: Path) -> dict[str, Any] | None:
    """Read the header of an earlier run; None when there is none that can be read."""
    try:
        header = json.loads((folder / HEADER).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return header if isinstance(header, dict) else None


def changes(
    folder: Path, header: dict[str, Any], fingerprint: dict[str, Any], digest: Callable[[Path], str] = file_sha256
) -> list[str]:
    """Say what is no longer as it was when a result was made.

    Args:
        folder: where the result is.
        header: its header.
        fingerprint: of the run asked for now.
        digest: sha256 of a file.

    Returns:
        One phrase for each difference, `name: before -> now`; empty when the result stands.
    """
    found = []
    if header.get("format") != FORMAT:
        found.append(f"format: {header.get('format')} -> {FORMAT}")
    for name in (DATA, REJECTED):
        try:
            as_written = digest(folder / name) == header.get(_digest_field(name))
        except InputError:
            as_written = False
        if not as_written:
            found.append(f"{name}: missing or not as written")
    return found + list(_differences(header, fingerprint))


def make_header(
    folder: Path, fingerprint: dict[str, Any], counts: dict[str, Any], digest: Callable[[Path], str] = file_sha256
) -> dict[str, Any]:
    """Build the header of a result whose two files are in `folder`, under their final names."""
    digests = {_digest_field(name): digest(folder / name) for name in (DATA, REJECTED)}
    return {"format": FORMAT, **digests, **counts, **fingerprint}


def _digest_field(name: str) -> str:
    return "data_sha256" if name == DATA else "rejected_sha256"


def _differences(header: dict[str, Any], fingerprint: dict[str, Any]) -> Iterator[str]:
    before, now = _flat(header), _flat(fingerprint)
    # Of the header only what a fingerprint holds is compared; the rest of it is the result.
    names = list(now) + [name for name in before if name.split("/")[0] in ("sources", "settings") and name not in now]
    names += [name for name in before if name.startswith("tokenizer/files/") and name not in now]
    for name in names:
        if before.get(name) != now.get(name) and name != "tokenizer/sha256":
            yield f"{name.replace('/', ' ', 1)}: {_short(before.get(name))} -> {_short(now.get(name))}"


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            leaves.update(_flat(value, f"{prefix}{key}/"))
        elif key == "sources" and isinstance(value, list):
            leaves.update({f"sources/{item['name']}": item["sha256"] for item in value})
            leaves["sources/order"] = ", ".join(item["name"] for item in value)
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text[:12] if len(text) == 64 else text
