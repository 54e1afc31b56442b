"""The rows of all inputs in order, as each one's weight and cap choose them, counted where they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from pipeline.prepare.source import Row
from pipeline.prepare.sources import rows_of
from pipeline.prepare.sources.files import Input

CHUNK_ROWS = 1024
CHUNK_BYTES = 1 << 20
_RANGE = 1 << 64


class Reading:
    """One pass over the inputs.

    Attributes:
        rows_read: so far, those that were left out included.
        left_out: by weight, for each input.
        capped: inputs whose cap was reached: what is behind it was not read.
    """

    def __init__(self, inputs: Sequence[Input], seed: int) -> None:
        self.rows_read = 0
        self.left_out: dict[str, int] = {}
        self.capped: dict[str, int] = {}
        self._inputs = inputs
        self._seed = seed

    def chunks(self) -> Iterator[list[Row]]:
        """Rows that were chosen, many at a time: so many rows, or so many bytes and no more rows behind them."""
        chunk: list[Row] = []
        size = 0
        for row in self.rows():
            chunk.append(row)
            size += len(row.content)
            if len(chunk) == CHUNK_ROWS or size >= CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def rows(self) -> Iterator[Row]:
        """Rows that were chosen, one at a time."""
        for one in self._inputs:
            taken = 0
            for row in (row for part in one.parts for row in rows_of(part)):
                self.rows_read += 1
                # A fault is no row that could be left out: it has to be told.
                if row.fault is None and one.weight < 1 and not chosen(row, one.weight, self._seed):
                    self.left_out[one.given] = self.left_out.get(one.given, 0) + 1
                    continue
                taken += 1
                yield row
                if taken == one.cap:
                    self.capped[one.given] = taken
                    break


def chosen(row: Row, weight: float, seed: int) -> bool:
    """Whether a row is among the share that is taken: a function of its place and the seed alone."""
    digest = hashlib.blake2b(f"{seed}\n{row.source}\n{row.line}".encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < weight * _RANGE
