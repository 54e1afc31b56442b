"""A unit on its way to the disk: hashed and written, then committed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor

import msgspec
import torch

from pipeline.errors import EngineError
from pipeline.store.content import content_sha256, layer_records, non_finite_layers, row_norms
from pipeline.store.durable import NewFile, write_synced
from pipeline.store.layout import FORMAT, shard_file, sidecar_file
from pipeline.store.records import CapturedSample, Rejection, UnitOrder, UnitReport
from pipeline.store.shard import shard_bytes
from pipeline.store.sidecar import LayerRecord, RejectedRecord, SampleRecord, Sidecar, encode_sidecar
from pipeline.store.spec import StoreSpec
from pipeline.store.storage import Encoded, storage_of


class PendingUnit:
    """A unit whose shard's bytes were handed to the operating system; it counts when `commit` has returned."""

    def __init__(self, spec: StoreSpec, sidecar: Sidecar, shard: NewFile | None) -> None:
        self._spec = spec
        self._sidecar = sidecar
        self._shard = shard

    def commit(self) -> UnitReport:
        """Have shard and record on the disk, in this order: from here on no kill and no power cut can lose the unit.

        Raises:
            NoSpaceError, SettingsError: as `NewFile`; the unit does not count.
        """
        sidecar = self._sidecar
        if self._shard is not None:
            self._shard.commit()
        write_synced(sidecar_file(self._spec.folder, sidecar.unit), [encode_sidecar(sidecar)])
        return report_of(sidecar)

    def discard(self) -> None:
        """Remove what was written."""
        if self._shard is not None:
            self._shard.discard()


def report_of(sidecar: Sidecar) -> UnitReport:
    """What a run is told of a unit with this record."""
    rejected = tuple(Rejection(record.id, record.reason, record.line) for record in sidecar.rejected)
    return UnitReport(sidecar.unit, len(sidecar.samples), sidecar.rows, sidecar.bytes or 0, rejected)


def captured_samples(
    order: UnitOrder, states: torch.Tensor, norms: torch.Tensor, layer_ids: Sequence[int]
) -> tuple[list[CapturedSample], list[Rejection]]:
    """An order's samples with their states, and those that cannot be used.

    Args:
        order: the unit.
        states: `[rows, layers, hidden]`, sample after sample.
        norms: of these, `[rows, layers]`.
        layer_ids: the layers' output ids.
    """
    captured, rejected = list[CapturedSample](), list(order.rejected)
    start = 0
    for sample in order.samples:
        rows = slice(start, start + len(sample.input_ids))
        start = rows.stop
        if broken := non_finite_layers(states[rows], norms[rows]):
            reason = f"non-finite states at layer {', '.join(str(layer_ids[at]) for at in broken)}"
            rejected.append(Rejection(sample.id, reason, sample.line))
        else:
            captured.append(CapturedSample(sample.id, sample.input_ids, sample.loss_mask, states[rows], norms[rows]))
    return captured, rejected


def write_unit(
    spec: StoreSpec, unit: int, samples: Sequence[CapturedSample], rejected: Iterable[Rejection], pool: Executor
) -> PendingUnit:
    """Hash a unit's samples and write its shard, all at the same time; the samples' memory is free afterwards.

    Args:
        spec: of the store.
        unit: its number.
        samples: in the order of the shard; none if all were rejected: there is no shard then.
        rejected: samples of the unit that could not be captured.
        pool: threads to hash and to encode with.

    Raises:
        EngineError: states that are not one row per token, of the store's layers, hidden size and dtype.
        NoSpaceError, SettingsError: as `NewFile`; nothing of the unit is left.
    """
    for sample in samples:
        _check_shape(spec, sample)
    masks = [torch.tensor(sample.loss_mask, dtype=torch.uint8) for sample in samples]
    sidecar = Sidecar(
        format=FORMAT,
        unit=unit,
        identity=spec.identity,
        bytes=None,
        rows=sum(len(sample.input_ids) for sample in samples),
        trained_tokens=sum(int(mask.sum()) for mask in masks),
        samples=[],
        rejected=[RejectedRecord(rejection.id, rejection.line, rejection.reason) for rejection in rejected],
        layers=[],
    )
    if not samples:
        return PendingUnit(spec, sidecar, None)
    shard, records, layers = _write_shard(spec, unit, samples, masks, pool)
    sidecar = msgspec.structs.replace(sidecar, bytes=shard.bytes, samples=records, layers=layers)
    return PendingUnit(spec, sidecar, shard)


def _write_shard(
    spec: StoreSpec, unit: int, samples: Sequence[CapturedSample], masks: list[torch.Tensor], pool: Executor
) -> tuple[NewFile, list[SampleRecord], list[LayerRecord]]:
    storage = storage_of(spec.storage)
    ids = [torch.tensor(sample.input_ids, dtype=torch.int64) for sample in samples]
    encoded = list(pool.map(storage.encode, [sample.hidden_states for sample in samples]))
    # Hashing, norms and writing take about as long as each other, and none holds the interpreter's lock.
    hashes = pool.map(_hash, samples, encoded, ids, masks)
    norms = pool.map(_norms, samples)
    tensors = {
        "input_ids": ids,
        "offsets": [torch.tensor([0, *itertools.accumulate(len(tokens) for tokens in ids)], dtype=torch.int64)],
        "loss_mask": masks,
        **{name: [sample.pieces[name] for sample in encoded] for name in encoded[0].pieces},
    }
    file = NewFile(shard_file(spec.folder, unit))
    try:
        for piece in shard_bytes(tensors):
            file.write(piece)
        records = [
            SampleRecord(sample.id, len(sample.input_ids), sha256)
            for sample, sha256 in zip(samples, hashes, strict=True)
        ]
        layers = _layer_records(spec, list(norms), encoded, samples)
    except BaseException:
        file.discard()
        raise
    return file, records, layers


def _layer_records(
    spec: StoreSpec, norms: Sequence[torch.Tensor], encoded: Sequence[Encoded], samples: Sequence[CapturedSample]
) -> list[LayerRecord]:
    errors: list[float | None] = [None] * len(spec.layer_ids)
    lost = [sample.square_error for sample in encoded if sample.square_error is not None]
    if lost:
        squares = torch.cat(list(norms)).double().square().sum(dim=0).clamp_min(torch.finfo(torch.float64).tiny)
        errors = (torch.stack(lost).sum(dim=0) / squares).sqrt().tolist()
    return layer_records(zip([s.hidden_states for s in samples], norms, strict=True), spec.layer_ids, errors)


def _hash(sample: CapturedSample, encoded: Encoded, ids: torch.Tensor, mask: torch.Tensor) -> str:
    return content_sha256(encoded.content_dtype, sample.hidden_states.shape, (*encoded.content, ids, mask))


def _norms(sample: CapturedSample) -> torch.Tensor:
    return row_norms(sample.hidden_states) if sample.norms is None else sample.norms


def _check_shape(spec: StoreSpec, sample: CapturedSample) -> None:
    wanted = (len(sample.input_ids), len(spec.layer_ids), spec.hidden_size)
    states = sample.hidden_states
    dtype = str(states.dtype).removeprefix("torch.")
    if tuple(states.shape) != wanted or dtype != spec.dtype:
        raise EngineError(
            f"the engine gave sample {sample.id!r} states {dtype} {list(states.shape)}, not {spec.dtype} "
            f"{list(wanted)}: this is a bug of the engine, nothing of the unit was kept"
        )
