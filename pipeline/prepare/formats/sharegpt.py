"""ShareGPT: `{"conversations": [{"from": "human", "value": "..."}, ...], "system": "...", "tools": "..."}`."""

from __future__ import annotations

from typing import Any

from pipeline.prepare.conversation import Conversation
from pipeline.prepare.formats.turns import Json, conversation, decoded, text_at, tool_call, tools_of, turns_of
from pipeline.prepare.rejection import Rejection

ROLES = {
    "system": ("system",),
    "user": ("human", "user", "prompter", "person", "customer"),
    "assistant": ("gpt", "chatgpt", "assistant", "model", "bot", "bing", "bard", "claude", "chatbot", "output"),
    "tool": ("tool", "observation", "function_response", "function-response", "tool_response", "ipython"),
    "call": ("function_call", "function-call", "tool_call"),
}
ROLE_OF = {name: role for role, names in ROLES.items() for name in names}


def is_its_own(turns: Any, key: str) -> bool:
    """Whether a row's turns are ShareGPT's and not OpenAI's under another key."""
    first = turns[0] if isinstance(turns, list) and turns else None
    if isinstance(first, dict):
        return "from" in first and "role" not in first
    return key != "messages"


def read(row: Json) -> Conversation:
    """The conversation of a row.

    Raises:
        Rejection: something in it is not as it should be, or would be lost.
    """
    turns = turns_of(row)
    messages = [_message(turn, f"message {number}") for number, turn in enumerate(turns, 1)]
    return conversation(row, messages, turns, tools_of(row))


def _message(turn: Json, where: str) -> Json:
    given = text_at(turn, "from", where)
    role = ROLE_OF.get(given.lower())
    if role is None:
        raise Rejection("unknown-role", f"{where} has the role {given!r}")
    text = text_at(turn, "value", where)
    if role != "call":
        return {"role": role, "content": text}
    calls = decoded(text, f"'value' of {where}")
    calls = calls if isinstance(calls, list) and calls else [calls]
    return {"role": "assistant", "content": "", "tool_calls": [tool_call(call, where) for call in calls]}
