"""OpenAI: `{"messages": [{"role": "user", "content": "..."}, ...], "tools": [...]}`.

Content is text, or parts of which all are text. Answers may reason (`reasoning_content`, `reasoning`, `thinking`) and
call tools; a `function` message is the older name of a `tool` message.
"""

from __future__ import annotations

from typing import Any

from pipeline.prepare.conversation import Conversation, kind
from pipeline.prepare.formats.turns import Json, conversation, tool_call, tools_of, turns_of
from pipeline.prepare.rejection import Rejection

ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
ROW_KEYS = ("tools", "functions", "documents", "system")
REASONING = ("reasoning_content", "reasoning", "thinking")
ANSWERS_ONLY = (*REASONING, "tool_calls", "function_call")
TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text"}
THOUGHT_PARTS = {"thinking": "thinking", "reasoning": "text"}


def read(row: Json) -> Conversation:
    """The conversation of a row.

    Raises:
        Rejection: something in it is not as it should be, or would be lost.
    """
    turns = turns_of(row)
    messages = [message(turn, number) for number, turn in enumerate(turns, 1)]
    return conversation(row, messages, turns, tools_of(row))


def message(turn: Json, number: int) -> Json:
    """One message, in the form that chat templates take.

    Raises:
        Rejection: as for `read`.
    """
    where = f"message {number}"
    given = turn.get("role")
    if not isinstance(given, str):
        raise Rejection("wrong-type", f"'role' of {where} is {kind(given)}, not text")
    role = ROLES.get(given)
    if role is None:
        raise Rejection("unknown-role", f"{where} has the role {given!r}")
    if role != "assistant":
        for key in ANSWERS_ONLY:
            if turn.get(key):
                raise Rejection("unsupported-field", f"{where} is no answer and has '{key}'")
    calls = _calls(turn, where)
    content, thoughts = _content(turn.get("content"), bool(calls), where)
    made: Json = {"role": role, "content": content}
    if reasoning := _reasoning(turn, thoughts, where):
        made["reasoning_content"] = reasoning
    if calls:
        made["tool_calls"] = calls
    if role != "assistant" and len(made) > 2:  # thoughts among its parts
        raise Rejection("unsupported-field", f"{where} is no answer and reasons")
    for key in ("tool_call_id", "name"):
        if isinstance(value := turn.get(key), str) and value:
            made[key] = value
    return made


def _content(content: Any, may_be_absent: bool, where: str) -> tuple[str, str]:
    """What a message says, and what it thinks in parts of its content."""
    if isinstance(content, list):
        return _joined(content, where)
    if content is None and may_be_absent:
        return "", ""
    if not isinstance(content, str):
        raise Rejection("wrong-type", f"'content' of {where} is {kind(content)}, not text")
    return content, ""


def _calls(turn: Json, where: str) -> list[Json]:
    given = turn.get("tool_calls") or ([turn["function_call"]] if turn.get("function_call") else [])
    if not isinstance(given, list):
        raise Rejection("bad-tool-call", f"'tool_calls' of {where} is {kind(given)}, not a list")
    return [tool_call(call, where) for call in given]


def _joined(parts: list[Any], where: str) -> tuple[str, str]:
    """The text of parts, and the thoughts among them."""
    said: list[str] = []
    thought: list[str] = []
    for part in parts:
        what = part.get("type") if isinstance(part, dict) else None
        what = what if isinstance(what, str) else None
        key, texts = (THOUGHT_PARTS[what], thought) if what in THOUGHT_PARTS else (TEXT_PARTS.get(what or ""), said)
        value = part if isinstance(part, str) else part.get(key) if key and isinstance(part, dict) else None
        if not isinstance(value, str):
            raise Rejection("not-text", f"a part of {where} is {what or kind(part)!r}, and only text can be read")
        texts.append(value)
    return "".join(said), "".join(thought)


def _reasoning(turn: Json, thoughts: str, where: str) -> str:
    found = {thoughts} - {""}
    for key in REASONING:
        value = turn.get(key)
        if isinstance(value, str):
            found |= {value} - {""}
        elif value is not None:
            raise Rejection("wrong-type", f"'{key}' of {where} is {kind(value)}, not text")
    if len(found) > 1:
        raise Rejection("wrong-type", f"{where} has reasoning under two names, and they differ")
    return found.pop() if found else ""
