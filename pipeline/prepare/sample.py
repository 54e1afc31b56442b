"""Rows to tokenized samples: what is done with each row alone, and what only the order of all decides."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from pipeline.prepare.conversation import Conversation, own_id, row_of
from pipeline.prepare.encode import Encoded, Encoder, Settings
from pipeline.prepare.formats import Content, read
from pipeline.prepare.formats.text import Text
from pipeline.prepare.plain import PlainEncoder
from pipeline.prepare.rejection import Rejection
from pipeline.prepare.seen import DIGEST
from pipeline.prepare.source import Row


class Sample(NamedTuple):
    """One line of `tokenized.jsonl`, and what is counted of it: finished where it was made, cheap to hand on.

    Attributes:
        id: unique in the run.
        id_digest: of the id.
        digest: of token ids and mask.
        line: its bytes.
        tokens: how many.
        trained: how many of them.
        cut: whether it had more tokens.
        straddling: tokens that reach across an answer's border.
    """

    id: str
    id_digest: bytes
    digest: bytes
    line: bytes
    tokens: int
    trained: int
    cut: bool
    straddling: int


class Made(NamedTuple):
    """A row's samples.

    Attributes:
        source, line: where it stands.
        id: its own, or that of its place.
        form: the name of its format.
        samples: at least one.
        dropped: how many more it had that an earlier sample is the same as.
    """

    source: str
    line: int
    id: str
    form: str
    samples: tuple[Sample, ...]
    dropped: int = 0


@dataclass(frozen=True)
class Rejected:
    """One line of `rejected.jsonl`."""

    source: str
    line: int
    id: str
    reason: str
    detail: str


Outcome = Made | Rejected
DUPLICATE = "duplicate"
"""the reason of a row all of whose samples are the same as earlier ones; counted apart from what is rejected"""


class Sampler:
    """Makes samples of rows, each by itself."""

    def __init__(self, tokenizer: Any, settings: Settings) -> None:
        self._encoder = Encoder(tokenizer, settings)
        self._plain = PlainEncoder(tokenizer, settings)

    @property
    def template_source(self) -> str:
        """The chat template's text."""
        return self._encoder.template_source

    def __call__(self, rows: Sequence[Row]) -> list[Outcome]:
        """Each row's samples, or why it has none, in order."""
        contents = [_content(row) for row in rows]
        conversations = [content for _, _, content in contents if isinstance(content, Conversation)]
        texts = [content for _, _, content in contents if isinstance(content, Text)]
        from_conversations, from_texts = iter(self._encoder.encode_many(conversations)), iter(self._plain.texts(texts))
        outcomes: list[Outcome] = []
        for row, (row_id, form, content) in zip(rows, contents, strict=True):
            if isinstance(content, Rejection):
                encoded: list[Encoded] | Rejection = content
            elif isinstance(content, Conversation):
                encoded = next(from_conversations)
            elif isinstance(content, Text):
                encoded = next(from_texts)
            else:
                encoded = self._plain.tokens(content)
            if isinstance(encoded, Rejection):
                outcomes.append(Rejected(row.source, row.line, row_id, encoded.reason, encoded.detail))
            else:
                outcomes.append(Made(row.source, row.line, row_id, form, tuple(named(row_id, encoded))))
        return outcomes


def _content(row: Row) -> tuple[str, str, Content | Rejection]:
    """A row's id, its form's name, and what is in it."""
    row_id = row.default_id
    try:
        if row.fault:
            raise Rejection(*row.fault)
        given = row_of(row.content)
        row_id = own_id(given) or row_id
        form, content = read(given, row.form)
    except Rejection as why:
        return row_id, "", why
    return row_id, form, content


def named(row_id: str, encoded: Sequence[Encoded]) -> Iterator[Sample]:
    """The samples of one row: the only one has the row's id, of several each has its number behind it, from 1."""
    for number, one in enumerate(encoded, 1):
        yield _sample(row_id if len(encoded) == 1 else f"{row_id}#{number}", one)


def _sample(sample_id: str, one: Encoded) -> Sample:
    content = msgspec.json.encode({"input_ids": one.input_ids, "loss_mask": one.loss_mask})
    line = b'{"id":%b,%b\n' % (msgspec.json.encode(sample_id), content[1:])
    length = len(one.input_ids)
    return Sample(
        sample_id,
        hashlib.blake2b(sample_id.encode(), digest_size=DIGEST, person=b"id").digest(),
        hashlib.blake2b(content, digest_size=DIGEST, person=b"tokens").digest(),
        line,
        length,
        sum(one.loss_mask),
        one.full_length > length,
        one.straddling,
    )


class Memory(Protocol):
    """A set of digests."""

    def __contains__(self, digest: object) -> bool: ...

    def add(self, digest: bytes) -> None:
        """Remember one."""


def settled(outcomes: Iterable[Outcome], seen: Memory) -> Iterator[Outcome]:
    """Leave out what came before, in the order of the rows: the same samples, and ids that are taken.

    Args:
        outcomes: in order.
        seen: holds nothing yet; it remembers ids and samples that were used.
    """
    for outcome in outcomes:
        yield outcome if isinstance(outcome, Rejected) else _settle(outcome, seen)


def _settle(made: Made, seen: Memory) -> Outcome:
    first = made.samples[0]
    if len(made.samples) == 1 and first.digest not in seen and first.id_digest not in seen:
        # As nearly all rows are.
        seen.add(first.digest)
        seen.add(first.id_digest)
        return made
    new = tuple(sample for sample in made.samples if sample.digest not in seen)
    if not new:
        detail = "an earlier sample has the same tokens and the same mask"
        return Rejected(made.source, made.line, made.id, DUPLICATE, detail)
    for sample in new:
        if sample.id_digest in seen:
            detail = Rejection("duplicate-id", f"an earlier sample has the id {sample.id!r}").detail
            return Rejected(made.source, made.line, made.id, "duplicate-id", detail)
    kept = []
    for sample in new:
        # Of two samples of this row that are the same, the first.
        if sample.digest not in seen:
            seen.add(sample.digest)
            seen.add(sample.id_digest)
            kept.append(sample)
    return made._replace(samples=tuple(kept), dropped=len(made.samples) - len(kept))
