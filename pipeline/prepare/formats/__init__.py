"""The forms a row may have: one module a form, each from a row's object to what is to be encoded.

Which form a row has is seen from its keys, row by row, so that one file may hold several.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.prepare.conversation import Conversation
from pipeline.prepare.formats import alpaca, openai, prompt_response, sharegpt, text, tokens
from pipeline.prepare.formats.text import Text
from pipeline.prepare.formats.tokens import Tokens
from pipeline.prepare.formats.turns import TURN_LISTS
from pipeline.prepare.rejection import Rejection

Content = Conversation | Text | Tokens
FORMATS: dict[str, Callable[[dict[str, Any]], Content]] = {
    "openai": openai.read,
    "sharegpt": sharegpt.read,
    "alpaca": alpaca.read,
    "prompt-response": prompt_response.read,
    "text": text.read,
    "tokens": tokens.read,
}
KNOWN_KEYS = frozenset(
    {
        "id",
        *TURN_LISTS,
        *openai.ROW_KEYS,
        *alpaca.KEYS,
        *(key for pair in prompt_response.PAIRS for key in pair),
        *tokens.KEYS,
        "text",
    }
)
"""every key of a row that any form reads or refuses"""


def detect(row: dict[str, Any]) -> str:
    """The form of a row.

    Raises:
        Rejection: it has none of them.
    """
    has = {key for key, value in row.items() if value is not None}
    if "input_ids" in has:
        return "tokens"
    if listed := [key for key in TURN_LISTS if key in has]:
        return "sharegpt" if sharegpt.is_its_own(row[listed[0]], listed[0]) else "openai"
    if {"instruction", "output"} <= has:
        return "alpaca"
    if any(has.issuperset(pair) for pair in prompt_response.PAIRS):
        return "prompt-response"
    if "text" in has:
        return "text"
    keys = ", ".join(map(str, list(row)[:12])) or "none"
    raise Rejection("unknown-format", f"no known form has just these keys: {keys}")


def read(row: dict[str, Any], name: str | None = None) -> tuple[str, Content]:
    """What is in a row.

    Args:
        row: its object.
        name: of its form; seen from its keys when None.

    Returns:
        The form's name, and a conversation with at least one answer that is not empty, a text, or tokens.

    Raises:
        Rejection: the row has no such form, or something in it is not as the form has it.
    """
    name = name or detect(row)
    content = FORMATS[name](row)
    if isinstance(content, Conversation):
        _check_answers(content)
    return name, content


def conversation_of(row: dict[str, Any]) -> Conversation:
    """The conversation in a row, which has at least one message, and need not have an answer.

    Raises:
        Rejection: there is none, or it has what would be lost.
    """
    name = detect(row)
    content = FORMATS[name](row)
    if not isinstance(content, Conversation):
        raise Rejection("unknown-format", f"it is no conversation: its form is {name}")
    return content


def _check_answers(conversation: Conversation) -> None:
    answers = [message for message in conversation.messages if message["role"] == "assistant"]
    if not answers:
        raise Rejection("no-assistant-turn", "there is nothing to train on without an assistant message")
    if not all(answer["content"].strip() or answer.get("tool_calls") for answer in answers):
        raise Rejection("empty-answer", "an assistant message has no text")
