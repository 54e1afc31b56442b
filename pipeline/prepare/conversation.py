"""One line of a conversations file to a conversation, or to the reason why not.

OpenAI messages: `{"messages": [{"role": "user", "content": "..."}, ...]}`. ShareGPT:
`{"conversations": [{"from": "human", "value": "..."}, ...]}`. Either may carry an `id`, and its last answer
`"unfinished": true`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pipeline.prepare.rejection import Rejection

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
SHAREGPT_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "tool": "tool",
}
# Fields that a chat template renders. Leaving them out silently would train on a text that never was.
UNSUPPORTED_IN_ROW = ("tools", "functions", "documents", "system")
UNSUPPORTED_IN_MESSAGE = (
    "tool_calls",
    "function_call",
    "tool_call_id",
    "name",
    "reasoning",
    "reasoning_content",
    "thinking",
)
UNFINISHED = "unfinished"
"""true in a message that was cut off, as `regenerate` marks answers that reached the limit of new tokens"""


@dataclass(frozen=True)
class Conversation:
    """One row.

    Attributes:
        id: the row's own id, if it has one.
        messages: OpenAI's, as chat templates take them: `role`, `content` (text), and where a message has them
            `reasoning_content` (text), `tool_calls` (with arguments as objects), `tool_call_id`, `name`.
        unfinished: the last answer was cut off: no end-of-turn token of the target's follows it.
        tools: the functions that a template shows to the target, in OpenAI's form.
    """

    id: str | None
    messages: list[dict[str, Any]]
    unfinished: bool = False
    tools: list[dict[str, Any]] | None = None


def parse(line: bytes) -> Conversation:
    """Read one line.

    Args:
        line: UTF-8 JSON.

    Returns:
        A conversation with at least one assistant message, every one of them with text.

    Raises:
        Rejection: the line is not such a conversation.
    """
    conversation = conversation_of(row_of(line))
    answers = [message["content"] for message in conversation.messages if message["role"] == "assistant"]
    if not answers:
        raise Rejection("no-assistant-turn", "there is nothing to train on without an assistant message")
    if not all(answer.strip() for answer in answers):
        raise Rejection("empty-answer", "an assistant message has no text")
    return conversation


def conversation_of(row: dict[str, Any]) -> Conversation:
    """The conversation in a row, which has at least one message, and need not have an answer.

    Raises:
        Rejection: there is none, or it has what would be lost.
    """
    _refuse_fields(row, UNSUPPORTED_IN_ROW, "the row")
    messages = _messages(row)
    if not messages:
        raise Rejection("empty-conversation", "it has no message")
    own_id = row.get("id")
    own_id = own_id if isinstance(own_id, str) and own_id else None
    return Conversation(own_id, messages, _is_unfinished(row, messages))


def row_of(line: bytes) -> dict[str, Any]:
    """The object of one line of UTF-8 JSON.

    Raises:
        Rejection: it is none.
    """
    try:
        row = json.loads(line.decode("utf-8"))
        # A lone surrogate such as "\\ud83d" is legal JSON, but it is no text and no tokenizer takes it.
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise Rejection("not-utf8", f"byte {error.start + 1} of the line is not UTF-8") from error
    except UnicodeEncodeError as error:
        raise Rejection("not-utf8", "it holds half of a surrogate pair") from error
    except json.JSONDecodeError as error:
        raise Rejection("not-json", f"{error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise Rejection(
            "not-json", f"a number too long or brackets nested too deeply ({type(error).__name__})"
        ) from error
    if not isinstance(row, dict):
        raise Rejection("wrong-type", f"the line is {_name(row)}, not an object")
    return row


def _messages(row: dict[str, Any]) -> list[dict[str, str]]:
    keys = [key for key in ("messages", "conversations") if row.get(key) is not None]
    if len(keys) != 1:
        what = "both 'messages' and 'conversations'" if keys else "neither 'messages' nor 'conversations'"
        raise Rejection("wrong-type", f"the row has {what}")
    turns = row[keys[0]]
    if not isinstance(turns, list):
        raise Rejection("wrong-type", f"'{keys[0]}' is {_name(turns)}, not a list")
    return [_message(turn, number, keys[0] == "conversations") for number, turn in enumerate(turns, 1)]


def _is_unfinished(row: dict[str, Any], messages: list[dict[str, str]]) -> bool:
    turns = row.get("messages") or row["conversations"]
    marked = [number for number, turn in enumerate(turns, 1) if turn.get(UNFINISHED)]
    if marked and (marked != [len(turns)] or messages[-1]["role"] != "assistant"):
        raise Rejection(
            "unfinished-inside", f"message {marked[0]} is marked unfinished: only the last, an answer, may be"
        )
    return bool(marked)


def _message(turn: Any, number: int, sharegpt: bool) -> dict[str, str]:
    where = f"message {number}"
    if not isinstance(turn, dict):
        raise Rejection("wrong-type", f"{where} is {_name(turn)}, not an object")
    _refuse_fields(turn, UNSUPPORTED_IN_MESSAGE, where)
    role_key, text_key = ("from", "value") if sharegpt else ("role", "content")
    role, text = turn.get(role_key), turn.get(text_key)
    if not isinstance(role, str):
        raise Rejection("wrong-type", f"'{role_key}' of {where} is {_name(role)}, not text")
    known = SHAREGPT_ROLES.get(role) if sharegpt else role if role in ROLES else None
    if known is None:
        raise Rejection("unknown-role", f"{where} has the role {role!r}")
    if not isinstance(text, str):
        raise Rejection("wrong-type", f"'{text_key}' of {where} is {_name(text)}, not text")
    return {"role": known, "content": text}


def _refuse_fields(holder: dict[str, Any], fields: tuple[str, ...], where: str) -> None:
    for field in fields:
        if holder.get(field):
            raise Rejection("unsupported-field", f"{where} has '{field}', which this version would lose")


def _name(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "missing or null"}
    return names.get(type(value), "a number")
