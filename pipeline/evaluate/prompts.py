"""Held-out prompts, as the target reads them.

A row is `{"messages": [{"role", "content"}, ...]}` or `{"prompt": text}`, which is a conversation of one user turn;
either may carry an `id`. An answer at a conversation's end is left off: it is what the target is asked for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import InputError, NoSamplesError, SettingsError
from pipeline.prepare.conversation import UNSUPPORTED_IN_ROW
from pipeline.prepare.rejection import one_line
from pipeline.prepare.source import Row, read_rows


@dataclass(frozen=True)
class Prompt:
    """A prompt: its id, and its token ids with the header that asks for an answer at their end."""

    id: str
    token_ids: list[int]


def read_prompts(file: Path, tokenizer: Any, limit: int | None) -> list[Prompt]:
    """Read the prompts and render each with the target's chat template.

    Args:
        file: JSONL.
        tokenizer: the target's, of transformers.
        limit: take this many from the beginning; None: all.

    Raises:
        InputError: the file cannot be read, or a row is no prompt; names the line.
        NoSamplesError: there is no row.
        SettingsError: the tokenizer has no chat template.
    """
    if not tokenizer.chat_template:
        raise SettingsError(f"{tokenizer.name_or_path} has no chat template: a target needs one")
    prompts: dict[str, Prompt] = {}
    for row in read_rows(file):
        if limit is not None and len(prompts) == limit:
            break
        where = f"{file}, line {row.line}"
        name, messages = _conversation(row, where)
        if name in prompts:
            raise InputError(f"{where}: the id {name!r} is that of an earlier row: give each row its own")
        prompts[name] = Prompt(name, _render(tokenizer, messages, where))
    if not prompts:
        raise NoSamplesError(f"{file} has no prompts: every line is blank")
    return list(prompts.values())


def _conversation(row: Row, where: str) -> tuple[str, list[dict[str, Any]]]:
    try:
        content = json.loads(row.content)
    except ValueError as error:
        raise InputError(f"{where}: not JSON: {error}") from error
    if not isinstance(content, dict) or ("messages" in content) == ("prompt" in content):
        raise InputError(f"{where}: give an object with either 'messages' or 'prompt'")
    if lost := [field for field in UNSUPPORTED_IN_ROW if content.get(field)]:
        raise InputError(f"{where}: '{lost[0]}' would be lost: put it into the messages as the target reads it")
    name = content.get("id", row.default_id)
    if not isinstance(name, str) or not name:
        raise InputError(f"{where}: 'id' must be text")
    if "prompt" in content:
        messages: Any = [{"role": "user", "content": content["prompt"]}]
    else:
        messages = content["messages"]
    if not (isinstance(messages, list) and all(_is_message(message) for message in messages)):
        raise InputError(f"{where}: each message needs a 'role' and a 'content' of text")
    while messages and messages[-1]["role"] == "assistant":
        messages = messages[:-1]
    if not any(message["role"] == "user" for message in messages):
        raise InputError(f"{where}: there is no user's turn for the target to answer")
    return name, messages


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and all(isinstance(message.get(name), str) for name in ("role", "content"))


def _render(tokenizer: Any, messages: list[dict[str, Any]], where: str) -> list[int]:
    try:
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    # A template is a program out of the target's folder: whatever it raises is about this conversation.
    except Exception as error:
        reason = one_line(str(error) or type(error).__name__)
        raise InputError(f"{where}: the target's chat template refuses it: {reason}") from error
    return [int(token) for token in ids]
