"""An export read back from its files, before it is named done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from pipeline.errors import ExportError
from pipeline.export.draft import CONFIG, NOT_SAVED, WEIGHTS, draft_config
from pipeline.export.forms import EAGLE3, SPECULATORS, Form
from pipeline.export.public import check_public
from pipeline.export.vocabulary import check_vocabulary


def check_export(folder: Path, form: Form) -> None:
    """Load what was written and hold it against what was meant and what loaders ask for.

    Args:
        folder: with the two files.
        form: what was meant.

    Raises:
        ExportError: names the tensor or field.
    """
    try:
        config = json.loads((folder / CONFIG).read_bytes())
        with safe_open(folder / WEIGHTS, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (OSError, ValueError, SafetensorError) as error:
        raise ExportError(f"{form.name}: cannot be read back: {error}: export again") from error
    if config != form.config:
        raise ExportError(f"{form.name}/{CONFIG} is not what was written: export again")
    for name in form.tensors.keys() | tensors.keys():
        if name not in tensors or name not in form.tensors or not _same_bits(tensors[name], form.tensors[name]):
            raise ExportError(f"{form.name}/{WEIGHTS}: {name} is not what was written: export again")
    _check_finite(form.name, tensors)
    if form.name == EAGLE3:
        check_public(config, tensors)
    else:
        _check_speculators(config, tensors)
    vocab_size = config["vocab_size"] if form.name == EAGLE3 else config["transformer_layer_config"]["vocab_size"]
    check_vocabulary(tensors, config["draft_vocab_size"], vocab_size)


def _same_bits(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Equal, and a NaN is equal to itself: whether there should be one is another question."""
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    return torch.equal(one.contiguous().view(torch.uint8), two.contiguous().view(torch.uint8))


def _check_finite(form: str, tensors: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            count = int((~tensor.isfinite()).sum())
            raise ExportError(
                f"{form}/{WEIGHTS}: {name} has {count:,} values that are not finite in {tensor.dtype}: another "
                "--dtype, or another checkpoint"
            )


def _check_speculators(config: Mapping[str, object], tensors: Mapping[str, torch.Tensor]) -> None:
    """Names and shapes are those of speculators' model of this config."""
    from speculators.models.eagle3 import Eagle3DraftModel

    with torch.device("meta"):
        wanted = {name: tuple(t.shape) for name, t in Eagle3DraftModel(draft_config(config)).state_dict().items()}
    wanted = {name: shape for name, shape in wanted.items() if name not in NOT_SAVED}
    for name in sorted(wanted.keys() | tensors.keys()):
        if name not in tensors:
            raise ExportError(f"{SPECULATORS}/{WEIGHTS}: {name} is missing")
        if name not in wanted:
            raise ExportError(f"{SPECULATORS}/{WEIGHTS}: {name} is not a tensor of this draft")
        if tuple(tensors[name].shape) != wanted[name]:
            raise ExportError(f"{SPECULATORS}/{WEIGHTS}: {name} is {tuple(tensors[name].shape)} and not {wanted[name]}")
