"""A unit's record beside its shard: its samples, their hashes, and what was rejected. Standard library only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypedDict

from pipeline.errors import StoreDamagedError
from pipeline.store.layout import FORMAT, SHARDS, shard_file, sidecar_file, unit_of


class SampleRecord(TypedDict):
    """One sample of a shard."""

    id: str
    rows: int
    sha256: str
    """of its content, see `pipeline.store.content`"""


class FileRecord(TypedDict):
    """The shard file."""

    bytes: int
    sha256: str


class RejectedRecord(TypedDict):
    """One sample of the input that is in no shard; also a line of rejected.jsonl."""

    id: str | None
    line: int
    reason: str


class LayerRecord(TypedDict):
    """One captured layer over all rows of a shard: L2 norms of rows (None: not finite), and NaN or infinite values."""

    output: int
    norm_min: float | None
    norm_mean: float | None
    norm_max: float | None
    non_finite: int


class Sidecar(TypedDict):
    """The JSON object in `shards/NNNNNN.json`."""

    format: int
    unit: int
    shard: FileRecord | None
    """None where every sample of the unit was rejected: there is no shard file"""
    rows: int
    trained_tokens: int
    """ones in the loss masks"""
    samples: list[SampleRecord]
    rejected: list[RejectedRecord]
    layers: list[LayerRecord]


_NUMBERS = ("unit", "rows", "trained_tokens")
_LISTS = ("samples", "rejected", "layers")


def read_sidecar(store: Path, unit: int) -> Sidecar:
    """The record of a finished unit.

    Raises:
        StoreDamagedError: it is missing, or not what the writer writes.
    """
    file = sidecar_file(store, unit)
    try:
        record: Any = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise StoreDamagedError(f"{file} is damaged: {error}") from error
    sound = (
        isinstance(record, dict)
        and record.get("format") == FORMAT
        and record.get("unit") == unit
        and all(isinstance(record.get(key), int) for key in _NUMBERS)
        and all(isinstance(record.get(key), list) for key in _LISTS)
        and all(_has(sample, id=str, rows=int, sha256=str) for sample in record["samples"])
        and all(_has(rejected, id=(str, type(None)), line=int, reason=str) for rejected in record["rejected"])
        and all(_has(layer, output=int, non_finite=int) for layer in record["layers"])
        and (not record["samples"] if record.get("shard") is None else _has(record["shard"], bytes=int, sha256=str))
    )
    if not sound:
        raise StoreDamagedError(f"{file} is damaged: not the record of unit {unit}")
    sidecar: Sidecar = record
    return sidecar


def finished_units(store: Path) -> set[int]:
    """Units that are whole as far as names and sizes tell: a sound record, and a shard file as long as it says."""
    units = {unit_of(file) for file in (store / SHARDS).glob("*.json")} - {None}
    return {unit for unit in units if unit is not None and _is_whole(store, unit)}


def _has(record: Any, **kinds: type | tuple[type, ...]) -> bool:
    return isinstance(record, dict) and all(isinstance(record.get(key, ...), kind) for key, kind in kinds.items())


def _is_whole(store: Path, unit: int) -> bool:
    try:
        shard = read_sidecar(store, unit)["shard"]
        return shard is None or shard_file(store, unit).stat().st_size == shard["bytes"]
    except (StoreDamagedError, OSError):
        return False
