"""A question and its answer: `{"prompt": "...", "response": "..."}`, under the names that are in use.

Either may be a list of OpenAI messages instead of a text.
"""

from __future__ import annotations

from pipeline.prepare.conversation import Conversation, kind
from pipeline.prepare.formats import openai
from pipeline.prepare.formats.turns import Json, conversation, tools_of, turns_of
from pipeline.prepare.rejection import Rejection

PAIRS = (
    ("prompt", "response"),
    ("prompt", "completion"),
    ("question", "answer"),
    ("question", "response"),
    ("query", "response"),
    ("input", "output"),
)


def read(row: Json) -> Conversation:
    """The conversation of a row.

    Raises:
        Rejection: none of the pairs is there, or one of its two is neither text nor messages.
    """
    pair = next((pair for pair in PAIRS if all(row.get(key) is not None for key in pair)), None)
    if pair is None:
        raise Rejection("wrong-type", "the row has no 'prompt' with a 'response'")
    asked, answered = (_turns(row, key, role) for key, role in zip(pair, ("user", "assistant"), strict=True))
    turns = asked + answered
    messages = [openai.message(turn, number) for number, turn in enumerate(turns, 1)]
    return conversation(row, messages, turns, tools_of(row))


def _turns(row: Json, key: str, role: str) -> list[Json]:
    value = row[key]
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if isinstance(value, list):
        return turns_of({"messages": value})
    raise Rejection("wrong-type", f"'{key}' of the row is {kind(value)}, neither text nor messages")
