"""A unit's record beside its shard: its samples, their hashes, and what was rejected.

A record is one JSON object in one line whose last key is `seal`: the sha256 of all bytes before `,"seal":`. A changed
bit anywhere in it is found without the other files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pipeline.errors import StoreDamagedError
from pipeline.store.layout import FORMAT, SHARDS, shard_file, sidecar_file, unit_of

_SEAL = b',"seal":"'


class SampleRecord(msgspec.Struct, frozen=True, gc=False):
    """One sample of a shard."""

    id: str
    rows: int
    sha256: str
    """of its content, see `pipeline.store.content`"""


class RejectedRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One sample of the input that is in no shard; also a line of rejected.jsonl."""

    id: str | None
    line: int | None
    """of the input, from 1; None for a sample that was pruned: a store does not know its samples' lines"""
    reason: str
    source: str | None = None
    """in a store made of others: sha256 of the data that `line` counts in; left out where that is the store's own"""


class LayerRecord(msgspec.Struct, frozen=True, gc=False):
    """One captured layer over all rows of a shard."""

    output: int
    """the layer, in output numbering"""
    norm_min: float | None
    """smallest L2 norm of a row; None where it is not finite"""
    norm_mean: float | None
    norm_max: float | None
    square_sum: float | None
    """the rows' squared norms added up: what means and errors of several shards are weighted with"""
    non_finite: int
    """NaN or infinite values"""
    relative_error: float | None = None
    """Frobenius norm of (stored - computed) over that of computed; None where the storage loses nothing"""


class Sidecar(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON object in `shards/NNNNNN.json`."""

    format: int
    unit: int
    identity: str
    """sha256 of what the unit was made from, see `pipeline.store.manifest.identity_sha256`"""
    bytes: int | None
    """of the shard file; None where every sample of the unit was rejected: there is no shard file"""
    rows: int
    trained_tokens: int
    """ones in the loss masks"""
    samples: list[SampleRecord]
    rejected: list[RejectedRecord]
    layers: list[LayerRecord]


_DECODER = msgspec.json.Decoder(Sidecar)


def encode_sidecar(sidecar: Sidecar) -> bytes:
    """The sealed record's bytes."""
    text = msgspec.json.encode(sidecar)[:-1]
    return text + _SEAL + hashlib.sha256(text).hexdigest().encode() + b'"}\n'


def read_sidecar(store: Path, unit: int) -> Sidecar:
    """The record of a finished unit.

    Raises:
        StoreDamagedError: it is missing, or not what the writer wrote.
    """
    file = sidecar_file(store, unit)
    try:
        return decode_sidecar(file.read_bytes(), unit)
    except (OSError, ValueError) as error:
        raise StoreDamagedError(f"{file} is damaged: {error}") from error


def decode_sidecar(content: bytes, unit: int) -> Sidecar:
    """A record from its bytes.

    Raises:
        ValueError: it is not what the writer wrote.
    """
    text, _, seal = content.rpartition(_SEAL)
    if seal != hashlib.sha256(text).hexdigest().encode() + b'"}\n':
        raise ValueError("it was changed or cut off after it was written")
    sidecar = _DECODER.decode(text + b"}")  # msgspec's errors are ValueErrors
    if sidecar.format != FORMAT or sidecar.unit != unit:
        raise ValueError(f"not the record of unit {unit} in store format {FORMAT}")
    return sidecar


def finished_units(store: Path, identity: str) -> set[int]:
    """Units that are whole as far as names, records and sizes tell.

    A sound record, of a store with this identity, and a shard file as long as it says.

    Args:
        store: its folder.
        identity: see `Sidecar.identity`.
    """
    return {sidecar.unit for sidecar, _ in whole_records(store, identity)}


def whole_records(store: Path, identity: str) -> Iterator[tuple[Sidecar, bytes]]:
    """The records of the units that are whole as far as `finished_units` tells, in order, with their bytes."""
    units = {unit for file in (store / SHARDS).glob("*.json") if (unit := unit_of(file)) is not None}
    for unit in sorted(units):
        if whole := _whole(store, unit, identity):
            yield whole


def whole_sidecar(store: Path, unit: int, identity: str) -> Sidecar | None:
    """The record of a unit that is whole as far as `finished_units` tells, or None."""
    whole = _whole(store, unit, identity)
    return whole and whole[0]


def _whole(store: Path, unit: int, identity: str) -> tuple[Sidecar, bytes] | None:
    try:
        content = sidecar_file(store, unit).read_bytes()
        sidecar = decode_sidecar(content, unit)
        whole = sidecar.bytes is None or shard_file(store, unit).stat().st_size == sidecar.bytes
    except (OSError, ValueError):
        return None
    return (sidecar, content) if whole and sidecar.identity == identity else None
