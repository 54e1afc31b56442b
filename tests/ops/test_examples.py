"""The demo's held-out prompts say something about drafts only if training saw neither their topics nor their forms."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys

import pytest

from ops.paths import CHECKOUT

EXAMPLES = CHECKOUT / "examples"
MADE = runpy.run_path(str(EXAMPLES / "make_prompts.py"))
HELD_OUT = pytest.mark.parametrize("name", ["held-out-prompts.jsonl", "held-out-tasks.jsonl"])


def prompts(name: str) -> list[str]:
    rows = [json.loads(line) for line in (EXAMPLES / name).read_text("utf-8").splitlines()]
    assert len({row["id"] for row in rows}) == len(rows)
    return [row["messages"][-1]["content"] for row in rows]


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def test_the_training_prompts_are_what_their_script_writes() -> None:
    written = subprocess.run([sys.executable, EXAMPLES / "make_prompts.py"], stdout=subprocess.PIPE, check=True).stdout
    assert written == (EXAMPLES / "prompts.jsonl").read_bytes()


@HELD_OUT
def test_no_topic_of_the_training_prompts_is_in_a_held_out_one(name: str) -> None:
    topical = {word for topic in MADE["TOPICS"] for word in words(topic) if len(word) > 3}
    topical -= {word for form in MADE["FORMS"] for word in words(form)}
    shared = {word: prompt for prompt in prompts(name) for word in words(prompt) if word in topical}
    assert not shared


@HELD_OUT
def test_no_form_of_the_training_prompts_is_a_held_out_ones(name: str) -> None:
    training = {tuple(words(prompt)[:3]) for prompt in prompts("prompts.jsonl")}
    for prompt in prompts(name):
        assert tuple(words(prompt)[:3]) not in training
