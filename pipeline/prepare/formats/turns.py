"""What forms with a list of turns have in common."""

from __future__ import annotations

import json
from typing import Any

from pipeline.prepare.conversation import UNFINISHED, Conversation, kind, own_id
from pipeline.prepare.rejection import Rejection

TURN_LISTS = ("messages", "conversations", "conversation")
"""keys that hold a list of turns"""
Json = dict[str, Any]


def turns_of(row: Json) -> list[Json]:
    """The list of turns in a row, each an object that is to be trained on if it is an answer.

    Raises:
        Rejection: there is none, or more than one.
    """
    keys = [key for key in TURN_LISTS if row.get(key) is not None]
    if len(keys) != 1:
        what = f"both '{keys[0]}' and '{keys[1]}'" if keys else "neither 'messages' nor 'conversations'"
        raise Rejection("wrong-type", f"the row has {what}")
    turns = row[keys[0]]
    if not isinstance(turns, list):
        raise Rejection("wrong-type", f"'{keys[0]}' is {kind(turns)}, not a list")
    if not turns:
        raise Rejection("empty-conversation", "it has no message")
    for number, turn in enumerate(turns, 1):
        if not isinstance(turn, dict):
            raise Rejection("wrong-type", f"message {number} is {kind(turn)}, not an object")
        for field in ("weight", "train"):
            # Some data sets mark answers that must not be trained on.
            if field in turn and turn[field] is not None and not turn[field]:
                raise Rejection("unsupported-field", f"message {number} is not to be trained on ('{field}')")
    return turns


def conversation(row: Json, messages: list[Json], turns: list[Json], tools: list[Json] | None = None) -> Conversation:
    """A row's messages as a conversation, with its `system` in front and its last answer's `unfinished` mark.

    Args:
        row: the row.
        messages: read from its turns.
        turns: as the row has them.
        tools: the row's.

    Raises:
        Rejection: there are two system messages, or a message is marked unfinished that is not the last answer.
    """
    marked = [number for number, turn in enumerate(turns, 1) if turn.get(UNFINISHED)]
    if marked and (marked != [len(turns)] or messages[-1]["role"] != "assistant"):
        raise Rejection(
            "unfinished-inside", f"message {marked[0]} is marked unfinished: only the last, an answer, may be"
        )
    return Conversation(own_id(row), with_system(row, messages), bool(marked), tools)


def with_system(row: Json, messages: list[Json]) -> list[Json]:
    """The messages, the row's `system` in front.

    Raises:
        Rejection: it is no text, or the messages have a system message of their own.
    """
    system = row.get("system")
    if system in (None, ""):
        return messages
    if not isinstance(system, str):
        raise Rejection("wrong-type", f"'system' of the row is {kind(system)}, not text")
    if messages and messages[0]["role"] in {"system", "developer"}:
        if messages[0]["content"] == system:
            return messages
        raise Rejection("unsupported-field", "the row has a 'system' and a system message that says something else")
    return [{"role": "system", "content": system}, *messages]


def text_at(holder: Json, key: str, where: str) -> str:
    """The text under a key.

    Raises:
        Rejection: there is none.
    """
    value = holder.get(key)
    if not isinstance(value, str):
        raise Rejection("wrong-type", f"'{key}' of {where} is {kind(value)}, not text")
    return value


def tools_of(row: Json) -> list[Json] | None:
    """The functions that a row offers, in OpenAI's form; some data sets write them as a text of JSON.

    Raises:
        Rejection: they are no list of objects.
    """
    if row.get("documents"):
        raise Rejection("unsupported-field", "the row has 'documents', which would be lost")
    given = row.get("tools") or row.get("functions")
    if isinstance(given, str):
        given = decoded(given, "'tools' of the row") if given.strip() else None
    if not given:
        return None
    if not isinstance(given, list) or not all(isinstance(tool, dict) for tool in given):
        raise Rejection("wrong-type", "'tools' of the row is not a list of objects")
    return [tool if "function" in tool or "type" in tool else {"type": "function", "function": tool} for tool in given]


def tool_call(call: Any, where: str) -> Json:
    """A call in the form that chat templates take: its arguments an object.

    Raises:
        Rejection: it has no name, or its arguments are no object and no text of one.
    """
    function = call.get("function", call) if isinstance(call, dict) else call
    if not isinstance(function, dict):
        raise Rejection("bad-tool-call", f"a call of {where} is {kind(function)}, not an object")
    name, arguments = function.get("name"), function.get("arguments", function.get("parameters"))
    if not isinstance(name, str) or not name:
        raise Rejection("bad-tool-call", f"a call of {where} has no name")
    if isinstance(arguments, str):
        arguments = decoded(arguments, f"the arguments of a call of {where}") if arguments.strip() else {}
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise Rejection("bad-tool-call", f"the arguments of a call of {where} are {kind(arguments)}, not an object")
    own = call.get("id")
    made: Json = {"id": own} if isinstance(own, str) and own else {}
    return made | {"type": "function", "function": {"name": name, "arguments": arguments}}


def decoded(text: str, what: str) -> Any:
    """JSON inside of a text.

    Raises:
        Rejection: it is none.
    """
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise Rejection("bad-tool-call", f"{what}: not JSON: {error}") from error
    return value
