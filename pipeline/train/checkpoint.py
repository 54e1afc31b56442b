"""Checkpoints: everything that training needs to go on as if it had not been interrupted.

    step-00000123/
        config.json               speculators' format: vLLM serves this folder
        model.safetensors         the weights, float32
        training/                 what only training reads; vLLM takes every .safetensors beside the weights for theirs
            optimizer.safetensors "<optimizer>.<parameter>.<state>": each tensor as it is in memory
            rng.safetensors       states of torch's random number generators
            state.json            where training is, the schedulers, and what the run was started with
        checkpoint.json           size and sha256 of the other files: written last

A checkpoint is written under a hidden name, synced and renamed: a folder with its own name is whole.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import PreTrainedModel

from pipeline.errors import CheckpointError
from pipeline.files import sync
from pipeline.store.durable import told

FORMAT = 1
SEAL = "checkpoint.json"
_TRAINING = "training"
_OPTIMIZER, _RANDOM, _STATE = (
    f"{_TRAINING}/{name}" for name in ("optimizer.safetensors", "rng.safetensors", "state.json")
)
Json = dict[str, Any]
Tensors = dict[str, torch.Tensor]


def name_of(step: int) -> str:
    """The folder of the checkpoint after so many steps."""
    return f"step-{step:08d}"


def write(folder: Path, model: PreTrainedModel, optimizers: list[torch.optim.Optimizer], state: Json) -> None:
    """Write a checkpoint; if there is one of this name already, it stays and nothing is written.

    Args:
        folder: its final name.
        model: the draft, not wrapped.
        optimizers: as the trainer has them.
        state: goes into training/state.json.

    Raises:
        NoSpaceError, SettingsError: it cannot be written; what was written of it is removed.
    """
    if folder.exists():
        return
    temporary = folder.with_name(f".{folder.name}.tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        _fill(temporary, model, optimizers, state)
        for path in temporary.rglob("*"):
            sync(path)
        sync(temporary)
        temporary.rename(folder)
        sync(folder.parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise told(error, folder) from error


def _fill(folder: Path, model: PreTrainedModel, optimizers: list[torch.optim.Optimizer], state: Json) -> None:
    model.save_pretrained(folder)
    tensors, plain = _split_optimizers(optimizers)
    (folder / _TRAINING).mkdir()
    save_file(tensors, folder / _OPTIMIZER)
    save_file(_random_states(), folder / _RANDOM)
    (folder / _STATE).write_text(json.dumps({**state, "optimizers": plain}, indent=1))
    files = {str(file.relative_to(folder)): _seal(file) for file in sorted(folder.rglob("*")) if file.is_file()}
    (folder / SEAL).write_text(json.dumps({"format": FORMAT, "files": files}, indent=1))


def check(folder: Path) -> None:
    """Read every file of a checkpoint and compare it with what was written.

    Raises:
        CheckpointError: names the file.
    """
    try:
        seal = json.loads((folder / SEAL).read_bytes())
        if seal["format"] != FORMAT:
            raise CheckpointError(f"{folder} has checkpoint format {seal['format']}, this version reads {FORMAT}")
        for name, written in seal["files"].items():
            if _seal(folder / name) != written:
                raise CheckpointError(f"{folder / name} is not what was written: {_REDO}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder} is damaged ({error}): {_REDO}") from error


_REDO = "remove the folder to go on from the checkpoint before it"


def read_state(folder: Path) -> Json:
    """The content of training/state.json.

    Raises:
        CheckpointError: it cannot be read.
    """
    try:
        state: Json = json.loads((folder / _STATE).read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder} is damaged ({error}): {_REDO}") from error
    return state


def restore(folder: Path, model: PreTrainedModel, optimizers: list[torch.optim.Optimizer], state: Json) -> None:
    """Put the weights, the optimizers' states and the random number generators back.

    Raises:
        CheckpointError: the checkpoint is of another model or optimizer.
    """
    weights = read_tensors(folder / "model.safetensors")
    expected = {name for name in model.state_dict() if not name.startswith("verifier_")}
    if set(weights) != expected:
        raise CheckpointError(f"{folder} is a checkpoint of another draft: {sorted(set(weights) ^ expected)[:3]}")
    model.load_state_dict(weights, strict=False)
    tensors = read_tensors(folder / _OPTIMIZER)
    for number, (optimizer, plain) in enumerate(zip(optimizers, state["optimizers"], strict=True)):
        optimizer.load_state_dict({"state": _of_optimizer(tensors, number), "param_groups": plain})
    _set_random_states(read_tensors(folder / _RANDOM))


def read_tensors(file: Path) -> Tensors:
    """A file's tensors, copied: arithmetic on memory that is aligned as torch aligns it gives the same bits."""
    with safe_open(file, framework="pt") as opened:
        return {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118 - not a mapping


def _split_optimizers(optimizers: list[torch.optim.Optimizer]) -> tuple[Tensors, list[Any]]:
    """Tensors by "<optimizer>.<parameter>.<state>", and each optimizer's groups, which are plain values."""
    tensors, plain = {}, []
    for number, optimizer in enumerate(optimizers):
        content = optimizer.state_dict()
        plain.append(content["param_groups"])
        for parameter, state in content["state"].items():
            for name, value in state.items():
                tensors[f"{number}.{parameter}.{name}"] = torch.as_tensor(value).contiguous()
    return tensors, plain


def _of_optimizer(tensors: Tensors, number: int) -> dict[int, Tensors]:
    state: dict[int, Tensors] = {}
    for key, value in tensors.items():
        optimizer, parameter, name = key.split(".")
        if int(optimizer) == number:
            state.setdefault(int(parameter), {})[name] = value
    return state


def _random_states() -> Tensors:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _set_random_states(states: Tensors) -> None:
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def _seal(file: Path) -> Json:
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
            size += len(piece)
    return {"bytes": size, "sha256": digest.hexdigest()}
