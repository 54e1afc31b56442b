"""A draft's folder as serving reads it, in either of two forms, and what it holds.

*speculators*: `speculators_model_type` "eagle3" with the decoder layer's settings under `transformer_layer_config`.
*eagle3*: a transformers config whose architecture is one of `EAGLE3_ARCHITECTURES`. Only headers are read, no weights.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import CheckpointError, FitError, InputError
from pipeline.extract.digests import data_digest

EAGLE3_ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3Qwen3ForCausalLM")
"""of vllm/model_executor/models/registry.py (0.32): plain decoder layers"""
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
WEIGHTS = "model.safetensors"
_HEADER_LIMIT = 100_000_000
"""bytes; safetensors' own limit of a header"""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What a draft's config and the headers of its weights say."""

    folder: Path
    form: str
    """"speculators" or "eagle3\""""
    hidden_size: int
    target_hidden_size: int
    vocab_size: int
    """the target's"""
    draft_vocab_size: int
    layer_ids: tuple[int, ...] | None
    """in input numbering; None: serving's default"""
    shapes: Mapping[str, tuple[int, ...]]
    """of the tensors, by name; `midlayer.` is called `layers.0.`"""

    @property
    def weights_sha256(self) -> str:
        """Of the weights' file."""
        return data_digest(self.folder / WEIGHTS)


def read_draft(folder: Path) -> Draft:
    """Read a draft's config and its weights' header.

    Raises:
        InputError: no such folder.
        CheckpointError: a file is missing or damaged.
        FitError: it is no EAGLE-3 draft that vLLM serves.
    """
    if not folder.is_dir():
        raise InputError(f"no draft at {folder}: give the folder of a checkpoint, such as best/ of a training run")
    config = _config(folder / "config.json")
    form, layer = _form(folder, config)
    file = folder / "config.json"
    hidden = _number(file, layer, "hidden_size")
    vocab = _number(file, layer, "vocab_size")
    given = config.get("target_hidden_size")
    ids = config.get(LAYER_IDS) or (config.get("eagle_config") or {}).get(LAYER_IDS)
    if ids is not None and not (isinstance(ids, list) and all(type(layer_id) is int for layer_id in ids)):
        raise FitError(f"{LAYER_IDS} in {file} is {ids!r}: it must be a list of layers")
    return Draft(
        folder=folder,
        form=form,
        hidden_size=hidden,
        target_hidden_size=hidden if given is None else _number(file, config, "target_hidden_size"),
        vocab_size=vocab,
        draft_vocab_size=vocab if config.get("draft_vocab_size") is None else _number(file, config, "draft_vocab_size"),
        layer_ids=None if ids is None else tuple(ids),
        shapes=_shapes(folder / WEIGHTS),
    )


def _config(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_bytes())
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}: give the folder of a checkpoint") from error
    except ValueError as error:
        raise CheckpointError(f"{file} is not JSON ({error}): give another checkpoint") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{file} holds no settings: give another checkpoint")
    return config


def _form(folder: Path, config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    kind, layer = config.get("speculators_model_type"), config.get("transformer_layer_config")
    if kind is not None:
        if kind != "eagle3" or not isinstance(layer, dict):
            raise FitError(f"speculators_model_type of {folder} is {kind!r}: evaluate serves EAGLE-3 drafts, 'eagle3'")
        return "speculators", layer
    architectures = config.get("architectures") or ["none"]
    if architectures[0] not in EAGLE3_ARCHITECTURES:
        raise FitError(
            f"architectures of {folder} is {architectures[0]}: no EAGLE-3 draft, which has speculators_model_type "
            f"'eagle3' or one of {', '.join(EAGLE3_ARCHITECTURES)}"
        )
    return "eagle3", config


def _number(file: Path, config: dict[str, Any], name: str) -> int:
    value = config.get(name)
    if type(value) is not int or value < 1:
        raise FitError(f"{name} in {file} is {value!r}: it must be a number above 0")
    return value


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """The header of a safetensors file: its length (u64, little-endian), then JSON by tensor name."""
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > _HEADER_LIMIT:
                raise ValueError("its header is too long")
            header = json.loads(stream.read(length))
            size = file.stat().st_size - 8 - length
        header.pop("__metadata__", None)
        if max((tensor["data_offsets"][1] for tensor in header.values()), default=0) != size:
            raise ValueError("it is cut off")
        return {
            name.removeprefix("model.").replace("midlayer.", "layers.0."): tuple(tensor["shape"])
            for name, tensor in header.items()
        }
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}: give the folder of a checkpoint") from error
    except (ValueError, struct.error, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{file} is no whole safetensors file ({error}): give another checkpoint") from error
