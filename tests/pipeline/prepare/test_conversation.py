from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.prepare.conversation import Conversation, parse, row_of
from pipeline.prepare.formats import FORMATS, read
from pipeline.prepare.formats.text import Text
from pipeline.prepare.formats.tokens import Tokens
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
    (rb'{"text": "\udc00"}', "not-utf8"),
    (b'{"text": "a\x00b"}', "not-json"),
    (line({}), "unknown-format"),
    (line({"prompt": "a", "chosen": "b", "rejected": "c"}), "unknown-format"),
    (line({"messages": {"role": "user"}}), "wrong-type"),
    (line({"messages": ["Hi"]}), "wrong-type"),
    (line({"messages": [{"role": "user"}, ANSWER]}), "wrong-type"),
    (line({"messages": [{"content": "Hi"}, ANSWER]}), "wrong-type"),
    (line({"messages": [{"role": ["user"], "content": "Hi"}, ANSWER]}), "wrong-type"),
    (line({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}, ANSWER]}), "not-text"),
    (line({"messages": [{"role": "user", "content": [{"type": "text", "text": 3}]}, ANSWER]}), "not-text"),
    (line({"messages": [{"role": "user", "content": [None]}, ANSWER]}), "not-text"),
    (line({"messages": [USER, {"role": "assistant", "content": 4}]}), "wrong-type"),
    (line({"messages": [USER, {"role": "assistant", "content": None}]}), "wrong-type"),
    (line({"messages": [USER, {"role": "assistant"}]}), "wrong-type"),
    (line({"messages": [USER, ANSWER], "conversations": [{"from": "human", "value": "x"}]}), "wrong-type"),
    (line({"conversations": [{"from": "human", "value": "x"}, ANSWER]}), "wrong-type"),
    (line({"messages": [USER, {"role": "Assistant", "content": "x"}, ANSWER]}), "unknown-role"),
    (
        line({"conversations": [{"from": "moderator", "value": "{}"}, {"from": "gpt", "value": "x"}]}),
        "unknown-role",
    ),
    (line({"messages": []}), "empty-conversation"),
    (line({"messages": [USER, USER]}), "no-assistant-turn"),
    (line({"messages": [USER, {"role": "assistant", "content": " \n"}]}), "empty-answer"),
    (line({"messages": [USER, ANSWER, USER, {"role": "assistant", "content": ""}]}), "empty-answer"),
    (line({"messages": [USER, {**ANSWER, "tool_calls": [{"id": "1"}]}]}), "bad-tool-call"),
    (line({"messages": [USER, {**ANSWER, "tool_calls": "f()"}]}), "bad-tool-call"),
    (line({"messages": [USER, {**ANSWER, "tool_calls": [{"name": "f", "arguments": "{"}]}]}), "bad-tool-call"),
    (line({"messages": [USER, {**ANSWER, "tool_calls": [{"name": "f", "arguments": [1]}]}]}), "bad-tool-call"),
    (
        line({"conversations": [{"from": "human", "value": "x"}, {"from": "function_call", "value": "f"}]}),
        "bad-tool-call",
    ),
    (line({"messages": [{**USER, "tool_calls": [{"name": "f"}]}, ANSWER]}), "unsupported-field"),
    (line({"messages": [{**USER, "reasoning_content": "hm"}, ANSWER]}), "unsupported-field"),
    (line({"messages": [USER, {**ANSWER, "reasoning": "a", "thinking": "b"}]}), "wrong-type"),
    (line({"messages": [USER, {**ANSWER, "reasoning": 3}]}), "wrong-type"),
    (line({"messages": [USER, {**ANSWER, "weight": 0}]}), "unsupported-field"),
    (line({"messages": [USER, ANSWER], "documents": [{"text": "x"}]}), "unsupported-field"),
    (line({"messages": [USER, ANSWER], "tools": 3}), "wrong-type"),
    (line({"messages": [USER, ANSWER], "tools": "{"}), "bad-tool-call"),
    (line({"messages": [USER, ANSWER], "system": 3}), "wrong-type"),
    (line({"messages": [{"role": "system", "content": "a"}, USER, ANSWER], "system": "b"}), "unsupported-field"),
    (line({"instruction": "a", "output": 3}), "wrong-type"),
    (line({"instruction": "a", "output": "b", "history": [["c"]]}), "wrong-type"),
    (line({"prompt": "a", "response": {"x": 1}}), "wrong-type"),
    (line({"prompt": "a", "response": ""}), "empty-answer"),
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


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CALLED = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
TOOL = {"type": "function", "function": {"name": "f"}}


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("row", "form", "messages"),
    [
        ({"conversations": [USER, ANSWER]}, "openai", [USER, ANSWER]),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "H"}, "i"]}, ANSWER]},
            "openai",
            [USER, ANSWER],
        ),
        ({"messages": [USER, ANSWER], "prompt": "Hi", "text": "all"}, "openai", [USER, ANSWER]),
        ({"messages": [USER, {**ANSWER, "thinking": "t"}]}, "openai", [USER, {**ANSWER, "reasoning_content": "t"}]),
        (
            {
                "messages": [
                    USER,
                    {**ANSWER, "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "Hello"}]},
                ]
            },
            "openai",
            [USER, {**ANSWER, "reasoning_content": "t"}],
        ),
        (
            {
                "messages": [
                    {"role": "developer", "content": "d"},
                    USER,
                    {"role": "assistant", "content": None, "tool_calls": [CALL]},
                ]
            },
            "openai",
            [{"role": "developer", "content": "d"}, USER, {"role": "assistant", "content": "", "tool_calls": [CALLED]}],
        ),
        (
            {
                "messages": [
                    USER,
                    {**ANSWER, "function_call": CALL["function"]},
                    {"role": "function", "name": "f", "content": "1"},
                ]
            },
            "openai",
            [
                USER,
                {**ANSWER, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]},
                {"role": "tool", "content": "1", "name": "f"},
            ],
        ),
        (
            {"conversations": [{"from": "Human", "value": "Hi"}, {"from": "chatgpt", "value": "Hello"}], "system": "s"},
            "sharegpt",
            [{"role": "system", "content": "s"}, USER, ANSWER],
        ),
        (
            {"messages": [{"from": "prompter", "value": "Hi"}, {"from": "bard", "value": "Hello"}]},
            "sharegpt",
            [USER, ANSWER],
        ),
        (
            {
                "conversations": [
                    {"from": "user", "value": "Hi"},
                    {"from": "function_call", "value": '{"name": "f", "arguments": {"a": 1}}'},
                    {"from": "observation", "value": "1"},
                    {"from": "model", "value": "Hello"},
                ]
            },
            "sharegpt",
            [
                USER,
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"type": "function", "function": CALLED["function"]}],
                },
                {"role": "tool", "content": "1"},
                ANSWER,
            ],
        ),
        ({"instruction": "Hi", "input": " ", "output": "Hello", "text": "x"}, "alpaca", [USER, ANSWER]),
        (
            {"instruction": "a", "input": "b", "output": "c", "system": "s", "history": [["d", "e"]]},
            "alpaca",
            [{"role": "system", "content": "s"}, *said("d", "e", "a\n\nb", "c")],
        ),
        ({"prompt": "Hi", "completion": "Hello"}, "prompt-response", [USER, ANSWER]),
        ({"question": "Hi", "answer": "Hello"}, "prompt-response", [USER, ANSWER]),
        ({"prompt": [USER], "completion": [ANSWER]}, "prompt-response", [USER, ANSWER]),
    ],
)
def test_every_form_becomes_the_messages_that_templates_take(row: Any, form: str, messages: list[Any]) -> None:
    found, conversation = read(row_of(line(row)))
    assert isinstance(conversation, Conversation)
    assert (found, conversation.messages) == (form, messages)


@pytest.mark.parametrize("tools", [[TOOL], [{"name": "f"}], json.dumps([{"name": "f"}]), json.dumps([TOOL])])
@pytest.mark.parametrize("key", ["tools", "functions"])
def test_tools_come_in_one_form_however_they_are_written(tools: Any, key: str) -> None:
    assert parse(line({"messages": [USER, ANSWER], key: tools})).tools == [TOOL]


def test_format_that_is_given_is_not_looked_for() -> None:
    row = {"messages": [USER, ANSWER], "text": "all of it"}
    assert read(row, "text") == ("text", Text(None, "all of it"))
    with pytest.raises(Rejection, match="no 'prompt' with a 'response'"):
        read(row, "prompt-response")
    for form in FORMATS:
        with pytest.raises(Rejection):
            read({}, form)


@pytest.mark.parametrize(
    ("row", "mask"),
    [
        ({}, [1, 1, 1]),
        ({"loss_mask": [0, 1, 0]}, [0, 1, 0]),
        ({"loss_mask": [False, True, True]}, [0, 1, 1]),
        ({"labels": [-100, 6, 7]}, [0, 1, 1]),
        ({"loss_mask": None, "attention_mask": [1, 1, 1]}, [1, 1, 1]),
    ],
)
def test_tokens_are_taken_with_the_mask_that_they_bring(row: Any, mask: list[int]) -> None:
    assert read({"input_ids": [5, 6, 7], **row}) == ("tokens", Tokens(None, [5, 6, 7], mask))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"input_ids": []}, "empty-tokens"),
        ({"input_ids": [1, -1]}, "id-out-of-vocabulary"),
        ({"input_ids": [1, 2.0]}, "wrong-type"),
        ({"input_ids": [1, True]}, "wrong-type"),
        ({"input_ids": "12"}, "wrong-type"),
        ({"input_ids": [1, 2], "loss_mask": [1]}, "bad-mask"),
        ({"input_ids": [1, 2], "loss_mask": [1, 2]}, "bad-mask"),
        ({"input_ids": [1, 2], "loss_mask": [1, 1.0]}, "bad-mask"),
        ({"input_ids": [1, 2], "labels": [2, -100]}, "bad-mask"),
        ({"input_ids": [1, 0], "attention_mask": [1, 0]}, "unsupported-field"),
    ],
)
def test_tokens_whose_mask_is_not_certain_are_rejected(row: Any, reason: str) -> None:
    with pytest.raises(Rejection) as rejection:
        read(row)
    assert rejection.value.reason == reason
