"""One unit against its record: every byte is read and every hash computed again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from pipeline.errors import StoreDamagedError
from pipeline.store.content import content_sha256, non_finite_counts, row_norms
from pipeline.store.layout import shard_file
from pipeline.store.shard import MappedShard
from pipeline.store.sidecar import Sidecar
from pipeline.store.spec import StoreSpec
from pipeline.store.storage import storage_of


def unit_faults(spec: StoreSpec, sidecar: Sidecar) -> tuple[list[str], int]:
    """Everything wrong with a unit, and how many values in its states are NaN or infinite.

    Args:
        spec: of the store.
        sidecar: what should be in the unit.
    """
    file = shard_file(spec.folder, sidecar.unit)
    if sidecar.identity != spec.identity:
        return [f"{file.name}: its record is of a store that was made from something else"], 0
    if sidecar.bytes is None:
        return ([f"{file.name}: exists, but all samples of the unit were rejected"] if file.exists() else []), 0
    try:
        if file.stat().st_size != sidecar.bytes:
            return [f"{file.name}: {file.stat().st_size:,} bytes, its record says {sidecar.bytes:,}"], 0
        return _shard_faults(spec, sidecar, MappedShard(file).tensors)
    except OSError as error:
        return [f"{file.name}: cannot be read: {error.strerror}"], 0
    except (StoreDamagedError, ValueError) as error:
        return [f"{file.name}: {error}"], 0


def _shard_faults(spec: StoreSpec, sidecar: Sidecar, tensors: dict[str, torch.Tensor]) -> tuple[list[str], int]:
    name = shard_file(spec.folder, sidecar.unit).name
    offsets = offsets_of(sidecar)
    if faults := list(shape_faults(name, tensors, sidecar, spec)):
        return faults, 0
    storage = storage_of(spec.storage)
    states = storage.open(tensors, offsets, len(spec.layer_ids), spec.hidden_size)
    faults = list(_mask_faults(name, tensors["loss_mask"], sidecar))
    counted = [0] * len(spec.layer_ids)
    for at, sample in enumerate(sidecar.samples):
        rows = slice(offsets[at], offsets[at + 1])
        ids, mask = tensors["input_ids"][rows], tensors["loss_mask"][rows]
        try:
            content = states.content(at)
            decoded = content[0] if storage.content_dtype == spec.dtype else states.sample(at)
        except ValueError as error:
            return [*faults, f"{name}: sample {sample.id!r} cannot be read: {error}"], 0
        if content_sha256(storage.content_dtype, decoded.shape, (*content, ids, mask)) != sample.sha256:
            faults.append(f"{name}: sample {sample.id!r} is not what was written (content sha256)")
        found_here = non_finite_counts(decoded, row_norms(decoded))
        counted = [count + here for count, here in zip(counted, found_here, strict=True)]
    found = list(zip(spec.layer_ids, counted, strict=True))
    if found != [(layer.output, layer.non_finite) for layer in sidecar.layers]:
        faults.append(f"{name}: non-finite values by layer are {found}, its record says otherwise")
    return faults, sum(counted)


def offsets_of(sidecar: Sidecar) -> list[int]:
    """What a shard's `offsets` should be."""
    return [0, *itertools.accumulate(sample.rows for sample in sidecar.samples)]


def shape_faults(name: str, tensors: dict[str, Any], sidecar: Sidecar, spec: StoreSpec) -> Iterator[str]:
    """What is wrong with the dtypes, shapes and offsets of a shard; the states themselves are not read.

    Args:
        name: of the shard.
        tensors: what is in it.
        sidecar: what should be.
        spec: of the store.

    Raises:
        ValueError: the tensors that would tell are missing or wrong.
    """
    offsets = offsets_of(sidecar)
    if sidecar.rows != offsets[-1]:
        yield f"{name}: its record says {sidecar.rows} rows, and {offsets[-1]} over its samples"
    shapes = storage_of(spec.storage).shapes(tensors, offsets, len(spec.layer_ids), spec.hidden_size)
    wanted = {
        **shapes,
        "input_ids": ("int64", [offsets[-1]]),
        "loss_mask": ("uint8", [offsets[-1]]),
        "offsets": ("int64", [len(offsets)]),
    }
    there = {key: (str(t.dtype).removeprefix("torch."), list(t.shape)) for key, t in tensors.items()}
    if there != wanted:
        differing = sorted(key for key in there.keys() | wanted.keys() if there.get(key) != wanted.get(key))
        yield f"{name}: {differing[0]} is {there.get(differing[0])}, not {wanted.get(differing[0])}"
    elif tensors["offsets"].tolist() != offsets:
        yield f"{name}: its offsets are not the sums of its samples' rows"


def _mask_faults(name: str, mask: torch.Tensor, sidecar: Sidecar) -> Iterator[str]:
    trained = int(mask.sum())
    if int(mask.max()) > 1 or trained != sidecar.trained_tokens:
        yield f"{name}: its loss masks are not {sidecar.trained_tokens} ones and otherwise zeros"
