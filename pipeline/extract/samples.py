"""One line of tokenized.jsonl, decoded and checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from msgspec import Meta


class TokenizedSample(msgspec.Struct, frozen=True):
    """A sample as prepare writes it.

    msgspec rather than json: it checks types and ranges while it decodes, and is 3 times as fast on lines of 2,000
    tokens.
    """

    id: Annotated[str, Meta(min_length=1)]
    input_ids: Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1)]
    loss_mask: list[Annotated[int, Meta(ge=0, le=1)]]
    """1 where the target itself would have produced the token"""

    def cut(self, length: int) -> TokenizedSample:
        """The sample's first `length` tokens."""
        if length == len(self.input_ids):
            return self
        return TokenizedSample(self.id, self.input_ids[:length], self.loss_mask[:length])


class BadSampleError(Exception):
    """A line that is no usable sample: `reason`, and `sample_id` as far as it is known."""

    def __init__(self, sample_id: str | None, reason: str) -> None:
        super().__init__(reason)
        self.sample_id = sample_id
        self.reason = reason


class _AsWritten(msgspec.Struct):
    """A line of the right types, whatever the values: what is wrong with those is told in this project's words."""

    id: str
    input_ids: list[int]
    loss_mask: list[int]


_DECODER = msgspec.json.Decoder(TokenizedSample)
_AS_WRITTEN = msgspec.json.Decoder(_AsWritten)


def decode_sample(text: bytes, vocab_size: int | None) -> TokenizedSample:
    """Decode a line and check everything that can be checked without other lines.

    Args:
        text: the line.
        vocab_size: token ids must be below it; None if that was checked before.

    Raises:
        BadSampleError: with the reason, worded for rejected.jsonl.
    """
    with suppress(msgspec.MsgspecError, RecursionError):
        sample = _DECODER.decode(text)
        known = vocab_size is None or max(sample.input_ids) < vocab_size
        if known and len(sample.loss_mask) == len(sample.input_ids):
            return sample
    raise _fault(text, vocab_size)


def _fault(text: bytes, vocab_size: int | None) -> BadSampleError:
    """The first thing wrong with a line that is no usable sample, in a fixed order: it is part of the plan's digest."""
    try:
        sample = _AS_WRITTEN.decode(text)
    except msgspec.ValidationError as error:
        return BadSampleError(_id_of(text), f"wrong keys or types: {error}")
    except (msgspec.DecodeError, RecursionError) as error:
        return BadSampleError(None, f"broken JSON: {error}")
    return BadSampleError(sample.id, next(_faults(sample, vocab_size)))


def _faults(sample: _AsWritten, vocab_size: int | None) -> Iterator[str]:
    if not sample.id:
        yield "empty id"
    if not sample.input_ids:
        yield "empty: no tokens"
    lowest, highest = min(sample.input_ids), max(sample.input_ids)
    if lowest < 0:
        yield f"token id {lowest} is negative"
    if vocab_size is not None and highest >= vocab_size:
        yield f"token id {highest} is out of the vocabulary of {vocab_size}"
    if len(sample.loss_mask) != len(sample.input_ids):
        yield f"loss_mask has {len(sample.loss_mask)} entries for {len(sample.input_ids)} tokens"
    if other := set(sample.loss_mask) - {0, 1}:
        yield f"loss_mask holds {min(other)}, only 0 and 1 are allowed"


def _id_of(text: bytes) -> str | None:
    """The id of a line that is JSON but no sample."""
    with suppress(msgspec.MsgspecError, RecursionError):
        row: Any = msgspec.json.decode(text)
        if isinstance(row, dict) and isinstance(row.get("id"), str):
            return str(row["id"])
    return None
