"""One line of tokenized.jsonl, decoded and checked."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec


class TokenizedSample(msgspec.Struct, frozen=True):
    """A sample as prepare writes it.

    msgspec rather than json: it checks types while it decodes, and is 3 times as fast on lines of 2,000 tokens.
    """

    id: str
    input_ids: list[int]
    loss_mask: list[int]
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


_DECODER = msgspec.json.Decoder(TokenizedSample)


def decode_sample(text: bytes, vocab_size: int | None) -> TokenizedSample:
    """Decode a line and check everything that can be checked without other lines.

    Args:
        text: the line.
        vocab_size: token ids must be below it; None if that was checked before.

    Raises:
        BadSampleError: with the reason, worded for rejected.jsonl.
    """
    try:
        sample = _DECODER.decode(text)
    except msgspec.ValidationError as error:
        raise BadSampleError(_id_of(text), f"wrong keys or types: {error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadSampleError(None, f"broken JSON: {error}") from error
    if not sample.id:
        raise BadSampleError(sample.id, "empty id")
    _check_tokens(sample, vocab_size)
    _check_mask(sample)
    return sample


def _check_tokens(sample: TokenizedSample, vocab_size: int | None) -> None:
    if not sample.input_ids:
        raise BadSampleError(sample.id, "empty: no tokens")
    lowest, highest = min(sample.input_ids), max(sample.input_ids)
    if lowest < 0:
        raise BadSampleError(sample.id, f"token id {lowest} is negative")
    if vocab_size is not None and highest >= vocab_size:
        raise BadSampleError(sample.id, f"token id {highest} is out of the vocabulary of {vocab_size}")


def _check_mask(sample: TokenizedSample) -> None:
    if len(sample.loss_mask) != len(sample.input_ids):
        raise BadSampleError(
            sample.id, f"loss_mask has {len(sample.loss_mask)} entries for {len(sample.input_ids)} tokens"
        )
    if other := set(sample.loss_mask) - {0, 1}:
        raise BadSampleError(sample.id, f"loss_mask holds {min(other)}, only 0 and 1 are allowed")


def _id_of(text: bytes) -> str | None:
    """The id of a line that is JSON but no sample."""
    with suppress(msgspec.MsgspecError, RecursionError):
        row: Any = msgspec.json.decode(text)
        if isinstance(row, dict) and isinstance(row.get("id"), str):
            return str(row["id"])
    return None
