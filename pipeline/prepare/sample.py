"""A row to a tokenized sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.prepare.conversation import Conversation, parse
from pipeline.prepare.mask import mask
from pipeline.prepare.rejection import Rejection
from pipeline.prepare.source import Row
from pipeline.prepare.template import Template


@dataclass(frozen=True)
class Sample:
    """One line of `tokenized.jsonl`.

    Attributes:
        id: unique in the run.
        input_ids: token ids.
        loss_mask: 0 or 1 for each of them.
        full_length: how many tokens it had before it was cut.
        straddling: tokens that reach across an answer's border.
    """

    id: str
    input_ids: list[int]
    loss_mask: list[int]
    full_length: int
    straddling: int


@dataclass(frozen=True)
class Rejected:
    """One line of `rejected.jsonl`."""

    source: str
    line: int
    id: str
    reason: str
    detail: str


class Sampler:
    """Makes samples with one tokenizer; remembers the ids it gave out."""

    def __init__(self, tokenizer: Any, max_seq_len: int) -> None:
        self._tokenizer = tokenizer
        self._template = Template(tokenizer)
        self._max_seq_len = max_seq_len
        self._ids: set[str] = set()

    @property
    def template_source(self) -> str:
        """The chat template's text."""
        return self._template.source

    def process(self, rows: Iterator[Row]) -> Iterator[Sample | Rejected]:
        """Turn every row into a sample or into its rejection, in order."""
        for row in rows:
            sample_id = row.default_id
            try:
                conversation = parse(row.content)
                sample_id = conversation.id or sample_id
                yield self._sample(sample_id, conversation)
            except Rejection as why:
                yield Rejected(row.source, row.line, sample_id, why.reason, why.detail)

    def _sample(self, sample_id: str, conversation: Conversation) -> Sample:
        if sample_id in self._ids:
            raise Rejection("duplicate-id", f"an earlier sample has the id {sample_id!r}")
        masked = mask(self._tokenizer, self._template.render(conversation.messages, conversation.unfinished))
        limit = self._max_seq_len
        if not any(masked.loss_mask):
            raise Rejection("no-trained-token", "none of its tokens lies inside an answer")
        if not any(masked.loss_mask[:limit]):
            first = masked.loss_mask.index(1) + 1
            raise Rejection("answer-beyond-limit", f"its first trained token is number {first}, the limit is {limit}")
        self._ids.add(sample_id)
        length = len(masked.input_ids)
        return Sample(sample_id, masked.input_ids[:limit], masked.loss_mask[:limit], length, masked.straddling)
