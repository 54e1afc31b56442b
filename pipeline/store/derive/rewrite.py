"""A unit cut to some of its samples: their bytes go into a shard of their own as they are, nothing is encoded again."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import torch

from pipeline.errors import StoreDamagedError
from pipeline.store.check import offsets_of, unit_faults
from pipeline.store.content import layer_records, row_norms
from pipeline.store.durable import NewFile
from pipeline.store.layout import shard_file
from pipeline.store.shard import MappedShard, shard_bytes
from pipeline.store.sidecar import LayerRecord, Sidecar, read_sidecar
from pipeline.store.spec import StoreSpec
from pipeline.store.storage import ShardStates, storage_of
from pipeline.store.unit import PendingUnit


def rewrite_unit(spec: StoreSpec, unit: int, source: StoreSpec, old: int, keep: Sequence[int]) -> int:
    """Write and commit a unit of some samples of another store's unit.

    Hashes of samples stay. Norms are those of the states as they are read; the storage's error, which cannot be known
    for some of the rows, stays that of the unit they come from.

    Args:
        spec: of the store that gets it.
        unit: its number there.
        source: of the store that has the samples; the same but for folder and identity.
        old: its number there.
        keep: the samples' numbers in it, at least one.

    Returns:
        Bytes of the shard file.

    Raises:
        StoreDamagedError: the unit is not what was written; every byte of it is checked.
        NoSpaceError, SettingsError: as `NewFile`; the unit does not count.
    """
    record = read_sidecar(source.folder, old)
    faults, _ = unit_faults(source, record)
    if faults:
        raise StoreDamagedError(f"{source.folder} is not sound: {faults[0]}; verify tells what to do")
    tensors = MappedShard(shard_file(source.folder, old)).tensors
    offsets = offsets_of(record)
    states = storage_of(source.storage).open(tensors, offsets, len(source.layer_ids), source.hidden_size)
    rows = [slice(offsets[at], offsets[at + 1]) for at in keep]
    masks = [tensors["loss_mask"][part] for part in rows]
    samples = [record.samples[at] for at in keep]
    pieces = [states.pieces(at) for at in keep]
    starts = [0, *itertools.accumulate(sample.rows for sample in samples)]
    file = _write(
        spec,
        unit,
        {
            "input_ids": [tensors["input_ids"][part] for part in rows],
            "loss_mask": masks,
            "offsets": [torch.tensor(starts, dtype=torch.int64)],
            **{name: [piece[name] for piece in pieces] for name in pieces[0]},
        },
    )
    cut = msgspec.structs.replace(
        record,
        unit=unit,
        identity=spec.identity,
        bytes=file.bytes,
        rows=starts[-1],
        trained_tokens=sum(int(mask.sum()) for mask in masks),
        samples=samples,
        rejected=[],
        layers=_layers(spec, record, states, keep),
    )
    return PendingUnit(spec, cut, file).commit().bytes


def _write(spec: StoreSpec, unit: int, tensors: dict[str, list[torch.Tensor]]) -> NewFile:
    file = NewFile(shard_file(spec.folder, unit))
    try:
        for piece in shard_bytes(tensors):
            file.write(piece)
    except BaseException:
        file.discard()
        raise
    return file


def _layers(spec: StoreSpec, record: Sidecar, states: ShardStates, keep: Sequence[int]) -> list[LayerRecord]:
    decoded = map(states.sample, keep)
    errors = [layer.relative_error for layer in record.layers]
    return layer_records(((sample, row_norms(sample)) for sample in decoded), spec.layer_ids, errors)
