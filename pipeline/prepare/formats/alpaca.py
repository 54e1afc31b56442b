"""Alpaca: `{"instruction": "...", "input": "...", "output": "...", "system": "...", "history": [["...", "..."], ...]}`.

The user says the instruction and, where there is one, the input after an empty line; no prose is put around them.
"""

from __future__ import annotations

from pipeline.prepare.conversation import Conversation
from pipeline.prepare.formats.turns import Json, conversation, text_at
from pipeline.prepare.rejection import Rejection

KEYS = ("instruction", "input", "output", "history")


def read(row: Json) -> Conversation:
    """The conversation of a row.

    Raises:
        Rejection: one of its fields is no text, or its history is no list of pairs.
    """
    question = text_at(row, "instruction", "the row")
    if row.get("input") is not None and (more := text_at(row, "input", "the row")).strip():
        question = f"{question}\n\n{more}" if question.strip() else more
    messages = _history(row)
    messages.append({"role": "user", "content": question})
    messages.append({"role": "assistant", "content": text_at(row, "output", "the row")})
    return conversation(row, messages, [])


def _history(row: Json) -> list[Json]:
    messages: list[Json] = []
    pairs = row.get("history") or []
    if not isinstance(pairs, list):
        raise Rejection("wrong-type", "'history' of the row is not a list of pairs")
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise Rejection("wrong-type", "'history' of the row holds something that is not a pair of texts")
        messages.append({"role": "user", "content": pair[0]})
        messages.append({"role": "assistant", "content": pair[1]})
    return messages
