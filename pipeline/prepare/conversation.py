"""A conversation as chat templates take it, and the object in a line of JSON that it comes from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from pipeline.prepare.rejection import Rejection

# Fields of a row that a reader of plain conversations must not lose silently.
UNSUPPORTED_IN_ROW = ("tools", "functions", "documents", "system")
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
        A conversation with at least one assistant message, every one of them with text or a call.

    Raises:
        Rejection: the line is not such a conversation.
    """
    from pipeline.prepare.formats import read  # its modules take a conversation from here

    name, content = read(row_of(line))
    if not isinstance(content, Conversation):
        raise Rejection("unknown-format", f"it is no conversation: its form is {name}")
    return content


def row_of(line: bytes) -> dict[str, Any]:
    """The object of one line of UTF-8 JSON.

    Raises:
        Rejection: it is none.
    """
    try:
        # 3 times as fast as json, and strict: text that it gives has no lone surrogate.
        row = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        row = _carefully(line)
    if not isinstance(row, dict):
        raise Rejection("wrong-type", f"the line is {kind(row)}, not an object")
    return row


def _carefully(line: bytes) -> Any:
    """The same by the standard library, which takes a little more (NaN) and says where it fails."""
    try:
        row = json.loads(line.decode("utf-8"))
        # A lone surrogate such as "\\ud83d" is legal JSON, but it is no text and no tokenizer takes it.
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise Rejection("not-utf8", f"byte {error.start + 1} of the line is not UTF-8") from error
    except UnicodeEncodeError as error:
        raise Rejection("not-utf8", "it holds half of a surrogate pair") from error
    except json.JSONDecodeError as error:
        raise Rejection("not-json", f"{error.msg.removesuffix(' at')} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise Rejection(
            "not-json", f"a number too long or brackets nested too deeply ({type(error).__name__})"
        ) from error
    return row


def own_id(row: dict[str, Any]) -> str | None:
    """The row's own id; anything but text is as good as none."""
    given = row.get("id")
    return given if isinstance(given, str) and given else None


def kind(value: Any) -> str:
    """What a value is, in words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "missing or null"}
    return names.get(type(value), "a number")
