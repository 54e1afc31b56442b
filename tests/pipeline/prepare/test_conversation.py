from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.prepare.conversation import parse
from pipeline.prepare.rejection import Rejection, one_line

USER, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}


def line(row: Any) -> bytes:
    return json.dumps(row).encode()


def test_openai_messages_are_read() -> None:
    conversation = parse(line({"id": "a", "messages": [USER, ANSWER]}))
    assert (conversation.id, conversation.messages) == ("a", [USER, ANSWER])


def test_sharegpt_turns_are_read_as_the_same_messages() -> None:
    turns = [{"from": "system", "value": "s"}, {"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]
    assert parse(line({"conversations": turns})).messages == [{"role": "system", "content": "s"}, USER, ANSWER]


@pytest.mark.parametrize("own_id", [None, "", 7, ["a"]])
def test_id_that_is_no_text_is_as_good_as_none(own_id: Any) -> None:
    assert parse(line({"id": own_id, "messages": [USER, ANSWER]})).id is None


def test_fields_that_no_template_renders_are_ignored() -> None:
    row = {"messages": [{**USER, "timestamp": 1}, {**ANSWER, "tool_calls": None}], "score": 0.5, "tools": []}
    assert parse(line(row)).messages == [USER, ANSWER]


BAD = [
    (b"{", "not-json"),
    (b'{"messages": [NaN', "not-json"),
    (b"[" * 100_000, "not-json"),
    (b'{"id": ' + b"9" * 5000 + b"}", "not-json"),
    (b"\xff\xfe", "not-utf8"),
    (rb'{"messages": [{"role": "user", "content": "\ud83d"}, {"role": "assistant", "content": "x"}]}', "not-utf8"),
    (b"[]", "wrong-type"),
    (b"null", "wrong-type"),
    (b'"text"', "wrong-type"),
    (line({}), "wrong-type"),
    (line({"messages": {"role": "user"}}), "wrong-type"),
    (line({"messages": ["Hi"]}), "wrong-type"),
    (line({"messages": [{"role": "user"}, ANSWER]}), "wrong-type"),
    (line({"messages": [{"content": "Hi"}, ANSWER]}), "wrong-type"),
    (line({"messages": [{"role": ["user"], "content": "Hi"}, ANSWER]}), "wrong-type"),
    (line({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}, ANSWER]}), "wrong-type"),
    (line({"messages": [USER, {"role": "assistant", "content": 4}]}), "wrong-type"),
    (line({"messages": [USER, ANSWER], "conversations": [{"from": "human", "value": "x"}]}), "wrong-type"),
    (line({"conversations": [USER, ANSWER]}), "wrong-type"),
    (line({"messages": [USER, {"role": "Assistant", "content": "x"}, ANSWER]}), "unknown-role"),
    (
        line({"conversations": [{"from": "function_call", "value": "{}"}, {"from": "gpt", "value": "x"}]}),
        "unknown-role",
    ),
    (line({"messages": []}), "empty-conversation"),
    (line({"messages": [USER, USER]}), "no-assistant-turn"),
    (line({"messages": [USER, {"role": "assistant", "content": " \n"}]}), "empty-answer"),
    (line({"messages": [USER, ANSWER, USER, {"role": "assistant", "content": ""}]}), "empty-answer"),
    (line({"messages": [USER, {**ANSWER, "tool_calls": [{"id": "1"}]}]}), "unsupported-field"),
    (line({"messages": [USER, {**ANSWER, "reasoning_content": "hm"}]}), "unsupported-field"),
    (line({"messages": [USER, ANSWER], "tools": [{"type": "function"}]}), "unsupported-field"),
    (line({"conversations": [{"from": "gpt", "value": "x"}], "system": "Be brief."}), "unsupported-field"),
]


@pytest.mark.parametrize(("content", "reason"), BAD, ids=[f"{reason}-{n}" for n, (_, reason) in enumerate(BAD)])
def test_bad_line_is_rejected_with_its_reason_in_one_line(content: bytes, reason: str) -> None:
    with pytest.raises(Rejection) as rejection:
        parse(content)
    assert rejection.value.reason == reason
    assert rejection.value.detail.isprintable()
    assert len(rejection.value.detail) <= 200


def test_detail_is_one_short_printable_line() -> None:
    assert one_line("a\n\n\tb\x1b[31m\u202ec") == "a b [31m c"
    assert one_line("x" * 500) == "x" * 199 + "…"
