"""Held-out prompts: which rows are taken, and how the target reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import InputError, NoSamplesError, SettingsError
from pipeline.evaluate.prompts import read_prompts


class Tokenizer:
    """Renders `role:content` for each message and gives characters' codes."""

    name_or_path = "target"
    chat_template: str | None = "a template"

    def apply_chat_template(self, messages: list[dict[str, str]], **options: bool) -> list[int]:
        assert options == {"add_generation_prompt": True, "tokenize": True, "return_dict": False}
        if messages[0]["role"] == "tool":
            raise ValueError("a tool\ncannot begin")
        return [ord(char) for char in "|".join(f"{message['role']}:{message['content']}" for message in messages)]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def read(folder: Path, *rows: Any, limit: int | None = None) -> dict[str, str]:
    file = folder / "held.jsonl"
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return {prompt.id: "".join(map(chr, prompt.token_ids)) for prompt in read_prompts(file, Tokenizer(), limit)}


def test_messages_and_prompts_are_rendered_alike(tmp_path: Path) -> None:
    rows = ({"id": "one", "messages": [user("hello")]}, {"prompt": "hello"})
    assert read(tmp_path, *rows) == {"one": "user:hello", "held:2": "user:hello"}


def test_an_answer_at_the_end_is_left_off_and_earlier_turns_are_kept(tmp_path: Path) -> None:
    talk = [user("a"), assistant("b"), user("c"), assistant("d")]
    assert read(tmp_path, {"id": "one", "messages": talk}) == {"one": "user:a|assistant:b|user:c"}


def test_a_limit_takes_rows_from_the_beginning_and_blank_lines_are_none(tmp_path: Path) -> None:
    assert list(read(tmp_path, {"prompt": "a"}, "", {"prompt": "b"}, {"prompt": "c"}, limit=2)) == ["held:1", "held:3"]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("{", "not JSON"),
        ([1], "either 'messages' or 'prompt'"),
        ({"id": "x"}, "either 'messages' or 'prompt'"),
        ({"messages": [user("a")], "prompt": "a"}, "either 'messages' or 'prompt'"),
        ({"prompt": 5}, "'content' of text"),
        ({"messages": "hello"}, "'content' of text"),
        ({"messages": [{"role": "user"}]}, "'content' of text"),
        ({"messages": [assistant("a")]}, "no user's turn"),
        ({"messages": []}, "no user's turn"),
        ({"id": 7, "prompt": "a"}, "'id' must be text"),
        ({"prompt": "a", "tools": [{}]}, "'tools' would be lost"),
        ({"id": "first", "prompt": "a"}, "the id 'first' is that of an earlier row"),
        ({"messages": [{"role": "tool", "content": "x"}, user("a")]}, "refuses it: a tool cannot begin"),
    ],
)
def test_a_row_that_is_no_prompt_is_named_by_its_line(row: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"held\.jsonl, line 2: .*{told}") as failed:
        read(tmp_path, {"id": "first", "prompt": "a"}, row)
    assert "\n" not in str(failed.value)


def test_a_file_of_blank_lines_has_nothing_usable(tmp_path: Path) -> None:
    with pytest.raises(NoSamplesError):
        read(tmp_path, "", " ")


def test_a_target_without_a_template_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(SettingsError, match="no chat template"):
        read_prompts(tmp_path / "held.jsonl", tokenizer, None)
