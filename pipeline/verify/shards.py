"""One shard file against its sidecar."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from pipeline.errors import InputError
from pipeline.extract.digests import data_digest
from pipeline.store.content import content_sha256, layer_records, tensor_bytes
from pipeline.store.sidecar import Sidecar


def shard_faults(file: Path, sidecar: Sidecar, manifest: dict[str, Any]) -> tuple[list[str], int]:
    """Everything wrong with a shard file, and how many values in its states are NaN or infinite.

    Args:
        file: the shard file.
        sidecar: what should be in it.
        manifest: of the store.
    """
    shard = sidecar["shard"]
    assert shard is not None, "a unit without a shard"  # noqa: S101 - for the type checker; the caller has looked
    faults: list[str] = []
    try:
        if file.stat().st_size != shard["bytes"]:
            faults.append(f"{file.name}: {file.stat().st_size:,} bytes, its record says {shard['bytes']:,}")
        elif data_digest(file) != shard["sha256"]:
            faults.append(f"{file.name}: not the file that was written (sha256)")
        tensors = load_file(file)
    except (SafetensorError, InputError, OSError) as error:
        return [*faults, f"{file.name}: cannot be read: {error}"], 0
    if shape_faults := list(_shape_faults(file.name, tensors, sidecar, manifest)):
        return faults + shape_faults, 0
    faults += _content_faults(file.name, tensors, sidecar)
    layers = layer_records([tensors["hidden_states"]], manifest["layer_ids"]["output"])
    counted = [(layer["output"], layer["non_finite"]) for layer in layers]
    if counted != [(layer.get("output"), layer.get("non_finite")) for layer in sidecar["layers"]]:
        faults.append(f"{file.name}: non-finite values by layer are {counted}, its record says otherwise")
    return faults, sum(number for _, number in counted)


def _shape_faults(
    name: str, tensors: dict[str, torch.Tensor], sidecar: Sidecar, manifest: dict[str, Any]
) -> Iterator[str]:
    rows = [sample["rows"] for sample in sidecar["samples"]]
    total = sum(rows)
    if sidecar["rows"] != total:
        yield f"{name}: its record says {sidecar['rows']} rows, and {total} over its samples"
    states = [total, len(manifest["layer_ids"]["output"]), manifest["hidden_size"]]
    wanted = {
        "hidden_states": (manifest["dtype"], states),
        "input_ids": ("int64", [total]),
        "loss_mask": ("uint8", [total]),
        "offsets": ("int64", [len(rows) + 1]),
    }
    there = {key: (str(t.dtype).removeprefix("torch."), list(t.shape)) for key, t in tensors.items()}
    if there != wanted:
        differing = sorted(key for key in there.keys() | wanted.keys() if there.get(key) != wanted.get(key))
        yield f"{name}: {differing[0]} is {there.get(differing[0])}, not {wanted.get(differing[0])}"
    elif tensors["offsets"].tolist() != [0, *itertools.accumulate(rows)]:
        yield f"{name}: its offsets are not the sums of its samples' rows"


def _content_faults(name: str, tensors: dict[str, torch.Tensor], sidecar: Sidecar) -> Iterator[str]:
    trained = int(tensors["loss_mask"].sum())
    if int(tensors["loss_mask"].max()) > 1 or trained != sidecar["trained_tokens"]:
        yield f"{name}: its loss masks are not {sidecar['trained_tokens']} ones and otherwise zeros"
    start = 0
    for sample in sidecar["samples"]:
        if _sha256(tensors, slice(start, start + sample["rows"])) != sample["sha256"]:
            yield f"{name}: sample {sample['id']!r} is not what was written (content sha256)"
        start += sample["rows"]


def _sha256(tensors: dict[str, torch.Tensor], rows: slice) -> str:
    ids, mask = tensors["input_ids"][rows], tensors["loss_mask"][rows]
    return content_sha256(tensors["hidden_states"][rows], tensor_bytes(ids), tensor_bytes(mask))
