"""The demo's held-out prompts say something about drafts only if training saw neither their topics nor their forms."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys

from ops.paths import CHECKOUT

EXAMPLES = CHECKOUT / "examples"
MADE = runpy.run_path(str(EXAMPLES / "make_prompts.py"))


def prompts(name: str) -> list[str]:
    rows = [json.loads(line) for line in (EXAMPLES / name).read_text("utf-8").splitlines()]
    assert len({row["id"] for row in rows}) == len(rows)
    return [row["messages"][-1]["content"] for row in rows]


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def test_the_training_prompts_are_what_their_script_writes() -> None:
    written = subprocess.run([sys.executable, EXAMPLES / "make_prompts.py"], stdout=subprocess.PIPE, check=True).stdout
    assert written == (EXAMPLES / "prompts.jsonl").read_bytes()


def test_no_topic_of_the_training_prompts_is_in_a_held_out_one() -> None:
    topical = {word for topic in MADE["TOPICS"] for word in words(topic) if len(word) > 3}
    topical -= {word for form in MADE["FORMS"] for word in words(form)}
    shared = {word: prompt for prompt in prompts("held-out-prompts.jsonl") for word in words(prompt) if word in topical}
    assert not shared


def test_no_form_of_the_training_prompts_is_a_held_out_ones() -> None:
    training = {tuple(words(prompt)[:3]) for prompt in prompts("prompts.jsonl")}
    for prompt in prompts("held-out-prompts.jsonl"):
        assert tuple(words(prompt)[:3]) not in training
