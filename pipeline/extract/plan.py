"""Tokenized samples to work units: a pure function of the data and the settings.

One pass over tokenized.jsonl: it is hashed, every line is checked, and samples are packed in data order into units
(next-fit: a sample that does not fit opens a new unit). A plan holds byte offsets, not tokens: 100,000 samples of
2,000 tokens are 2 GB of JSON that must never all be in memory, and a million samples are planned in 250 MiB
(bench/scale.py measures it). `read_unit` fetches a unit's tokens when its turn comes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from pipeline.errors import InputError
from pipeline.extract.samples import BadSampleError, TokenizedSample, decode_sample
from pipeline.store.records import Rejection

_BUFFER = 1 << 20
"""bytes; of the default, 8 KiB, a line of 2,000 tokens is put together from three reads"""


class SampleRef(msgspec.Struct, frozen=True, gc=False):
    """Where a usable sample lies in tokenized.jsonl.

    A struct that the garbage collector does not visit rather than a dataclass: a plan has one for every sample, and it
    takes 56 bytes instead of 120 and a tenth of the time to make.
    """

    id: str
    line: int
    """from 1"""
    offset: int
    """of the line's first byte"""
    length: int
    """tokens to extract; fewer than the line has where an over-long sample is cut"""


@dataclass(frozen=True, slots=True)
class Unit:
    """Samples that go through the engine together; a shard of the store."""

    index: int
    samples: tuple[SampleRef, ...]

    @property
    def tokens(self) -> int:
        """Tokens in the unit, and rows in its shard."""
        return sum(sample.length for sample in self.samples)


@dataclass(frozen=True)
class Plan:
    """All units, and the samples that are in none."""

    units: tuple[Unit, ...]
    rejected: tuple[Rejection, ...]
    input_samples: int
    """non-blank lines of tokenized.jsonl: samples in units and rejected together"""
    digest: str
    """sha256, in hex, over the units' samples (id, line, tokens) and the rejected ones"""
    data_sha256: str
    """of tokenized.jsonl"""


def build_plan(  # noqa: PLR0913 - keyword-only, one for each flag that shapes a plan
    prepared: Path,
    *,
    batch_size: int,
    token_budget: int,
    max_seq_len: int,
    over_long: Literal["reject", "cut"],
    vocab_size: int,
) -> Plan:
    """Pack the usable samples of a file into units.

    Args:
        prepared: tokenized.jsonl; where `<its stem>.header.json` lies beside it, its `data_sha256` must fit.
        batch_size: most samples in a unit.
        token_budget: most tokens in a unit; a longer sample is a unit of its own.
        max_seq_len: most tokens in a sample.
        over_long: what happens to a longer one: rejected, or cut to its first `max_seq_len` tokens.
        vocab_size: token ids are below it.

    Raises:
        InputError: the file cannot be read, or is not the one its header describes.
    """
    digest = hashlib.sha256()
    usable: dict[str, SampleRef] = {}
    rejected: list[Rejection] = []
    for line, offset, text in _lines(prepared):
        digest.update(text)
        if text.isspace():
            continue
        try:
            sample = decode_sample(text, vocab_size)
            if first := usable.get(sample.id):
                raise BadSampleError(sample.id, f"duplicate id, first on line {first.line}")
            if len(sample.input_ids) > max_seq_len and over_long == "reject":
                raise BadSampleError(sample.id, f"over long: {len(sample.input_ids)} tokens, at most {max_seq_len}")
        except BadSampleError as bad:
            rejected.append(Rejection(bad.sample_id, bad.reason, line))
            continue
        usable[sample.id] = SampleRef(sample.id, line, offset, min(len(sample.input_ids), max_seq_len))
    _check_header(prepared, digest.hexdigest())
    units = tuple(_pack(usable.values(), batch_size, token_budget))
    return Plan(units, tuple(rejected), len(usable) + len(rejected), _plan_digest(units, rejected), digest.hexdigest())


def read_unit(prepared: Path, unit: Unit) -> list[TokenizedSample]:
    """The tokens of a unit's samples, in its order, cut where the plan says so.

    Raises:
        InputError: the file cannot be read, or changed after the plan was made.
    """
    samples = []
    try:
        with prepared.open("rb") as stream:
            for ref in unit.samples:
                stream.seek(ref.offset)
                sample = decode_sample(stream.readline(), vocab_size=None)
                if sample.id != ref.id or len(sample.input_ids) < ref.length:
                    raise BadSampleError(sample.id, "another sample")
                samples.append(sample.cut(ref.length))
    except OSError as error:
        raise InputError(f"cannot read {prepared}: {error.strerror}") from error
    except BadSampleError as error:
        raise InputError(
            f"{prepared} changed while it was being extracted: line {ref.line} is no longer sample {ref.id!r}; "
            "restore it, or start over with another --output-dir"
        ) from error
    return samples


def _lines(file: Path) -> Iterator[tuple[int, int, bytes]]:
    offset = 0
    try:
        with file.open("rb", buffering=_BUFFER) as stream:
            for line, text in enumerate(stream, start=1):
                yield line, offset, text
                offset += len(text)
    except OSError as error:
        hint = "; give the tokenized.jsonl in it" if file.is_dir() else "; ./eyas prepare writes it"
        raise InputError(f"cannot read {file}: {error.strerror}{hint}") from error


def _check_header(prepared: Path, data_sha256: str) -> None:
    header = prepared.with_name(prepared.stem + ".header.json")
    if not header.exists():
        return
    try:
        described = json.loads(header.read_bytes())["data_sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{header} is not a header that prepare wrote ({error!r}); run ./eyas prepare again"
        ) from error
    if described != data_sha256:
        raise InputError(
            f"{prepared} is not the file that {header.name} describes (sha256 {data_sha256[:12]}…, header "
            f"{str(described)[:12]}…): it was changed or cut off; run ./eyas prepare again"
        )


def _pack(samples: Iterable[SampleRef], batch_size: int, token_budget: int) -> Iterator[Unit]:
    index, unit, tokens = 0, list[SampleRef](), 0
    for sample in samples:
        if unit and (len(unit) == batch_size or tokens + sample.length > token_budget):
            yield Unit(index, tuple(unit))
            index, unit, tokens = index + 1, [], 0
        unit.append(sample)
        tokens += sample.length
    if unit:
        yield Unit(index, tuple(unit))


def _plan_digest(units: Iterable[Unit], rejected: Iterable[Rejection]) -> str:
    digest = hashlib.sha256(b"eyas plan 1\n")
    for unit in units:
        digest.update(json.dumps([[sample.id, sample.line, sample.length] for sample in unit.samples]).encode() + b"\n")
    for rejection in rejected:
        row = {"id": rejection.id, "line": rejection.line, "reason": rejection.reason}
        digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()
