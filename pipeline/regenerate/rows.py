"""Rows of the input, as `prepare` reads them, and rows that are only a prompt: `{"prompt": "..."}`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.prepare.conversation import Conversation, row_of
from pipeline.prepare.formats import conversation_of
from pipeline.prepare.rejection import Rejection
from pipeline.prepare.sample import Rejected
from pipeline.prepare.source import Row, read_rows
from pipeline.regenerate.dialogue import Dialogue


def rows_of(paths: Sequence[Path], limit: int | None) -> Iterator[Row]:
    """The rows of all files, one file after the other, at most `limit`.

    Raises:
        InputError: a file is missing or cannot be read.
    """
    return itertools.islice(itertools.chain.from_iterable(map(read_rows, paths)), limit)


class DialogueReader:
    """Makes dialogues of rows; remembers the ids it gave out."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def read(self, row: Row) -> Dialogue | Rejected:
        """A row as a dialogue that the target has yet to write its part of, or why it is none."""
        own_id = row.default_id
        try:
            content = row_of(row.content)
            _refuse_tools(content)
            conversation = conversation_of(_with_messages(content))
            own_id = conversation.id or own_id
            _refuse_what_would_be_lost(conversation)
            dialogue = Dialogue(own_id, conversation.messages)
            if own_id in self._ids:
                raise Rejection("duplicate-id", f"an earlier row has the id {own_id!r}")
        except Rejection as why:
            return rejected(row, own_id, why)
        self._ids.add(own_id)
        return dialogue


def rejected(row: Row, own_id: str, why: Rejection) -> Rejected:
    """A row's line of `rejected.jsonl`."""
    return Rejected(row.source, row.line, own_id, why.reason, why.detail)


def _refuse_tools(row: dict[str, Any]) -> None:
    for field in ("tools", "functions", "documents"):
        if row.get(field):
            raise Rejection("unsupported-field", f"the row has '{field}', which this version would lose")


def _refuse_what_would_be_lost(conversation: Conversation) -> None:
    """Only text is rendered for the target to answer: no calls of tools, no reasoning, no names."""
    for number, message in enumerate(conversation.messages, 1):
        for key in message:
            if key not in {"role", "content"}:
                raise Rejection("unsupported-field", f"message {number} has '{key}', which this version would lose")


def _with_messages(row: dict[str, Any]) -> dict[str, Any]:
    prompt = row.get("prompt")
    if prompt is None or row.get("messages") is not None or row.get("conversations") is not None:
        return row
    if not isinstance(prompt, str):
        raise Rejection("wrong-type", "'prompt' is not text; give a conversation as 'messages'")
    return {**row, "messages": [{"role": "user", "content": prompt}]}
