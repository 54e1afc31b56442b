"""Rows to tokenized samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.prepare.conversation import parse
from pipeline.prepare.encode import Encoded, Encoder
from pipeline.prepare.rejection import Rejection
from pipeline.prepare.source import Row


@dataclass(frozen=True)
class Sample:
    """One line of `tokenized.jsonl`.

    Attributes:
        id: unique in the run.
        encoded: its tokens.
    """

    id: str
    encoded: Encoded


@dataclass(frozen=True)
class Rejected:
    """One line of `rejected.jsonl`."""

    source: str
    line: int
    id: str
    reason: str
    detail: str


class Sampler:
    """Makes samples of rows; remembers the ids it gave out."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._ids: set[str] = set()

    def process(self, rows: Iterator[Row]) -> Iterator[list[Sample] | Rejected]:
        """Turn every row into its samples or into its rejection, in order."""
        for row in rows:
            sample_id = row.default_id
            try:
                conversation = parse(row.content)
                sample_id = conversation.id or sample_id
                if sample_id in self._ids:
                    raise Rejection("duplicate-id", f"an earlier sample has the id {sample_id!r}")
                samples = named(sample_id, self._encoder.encode(conversation))
            except Rejection as why:
                yield Rejected(row.source, row.line, sample_id, why.reason, why.detail)
            else:
                self._ids.add(sample_id)
                yield samples


def named(row_id: str, encoded: list[Encoded]) -> list[Sample]:
    """The samples of one row: the only one has the row's id, of several each has its number behind it, from 1."""
    if len(encoded) == 1:
        return [Sample(row_id, encoded[0])]
    return [Sample(f"{row_id}#{number}", one) for number, one in enumerate(encoded, 1)]
