from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jinja2.sandbox
import pytest

from tests.pipeline.conftest import CHECKOUT
from tests.pipeline.target.metadata import field
from tests.pipeline.target.oracle import Oracle, split

READER = Path(__file__).with_name("read_tokenizer.py")
TRICKY = [
    "",
    " ",
    "Hello world",
    "  two  spaces  ",
    "\n\n\n\tindented\n    code\r\n",
    "it's we'll I'd THEY'RE 'tis",
    "12345 + 67,890 = 80235; 3.14e-10; ½ ² Ⅷ ١٢٣ 一二三",
    "naïve café e\u0301 Ångström ŀ",
    "日本語とひらがな、漢字。",
    "मनीषा की किताब",
    "العَرَبِيَّة עִבְרִית",
    "👩‍👩‍👧‍👦 🇯🇵 🏳️‍🌈 😀",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|><filename>a.py<|im_end",
    "\u00a0\u2003\u3000\u200b\ufeff",
    "control \x01\x04\x13\x1d end",
    "a" * 300,
    "ĠtheĊ Ġ▁",
]
ALPHABET = [*"aeinrst ESZ019.,'-\n\tßжก한漢é\u0301😀\u00a0", " the", " 7", "<|im_end|>", "'s"]


@cache
def texts() -> list[str]:
    dice = random.Random(5)  # noqa: S311 - nothing here is secret
    examples = (CHECKOUT / "examples" / "conversations.jsonl").read_text("utf-8").splitlines()
    return TRICKY + examples + ["".join(dice.choices(ALPHABET, k=dice.randrange(1, 60))) for _ in range(400)]


def conversations() -> list[list[dict[str, str]]]:
    hello, answer = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello 👋"}
    system = {"role": "system", "content": "Be brief."}
    return [[hello], [hello, answer], [system, hello, answer, hello], [{"role": "system", "content": ""}, hello]]


@pytest.fixture(scope="module")
def request_of_all(oracle: Oracle) -> dict[str, Any]:
    dice = random.Random(6)  # noqa: S311 - nothing here is secret
    ids = [oracle.encode(text) for text in texts()] + [dice.choices(range(49152), k=40) for _ in range(50)]
    return {"texts": texts(), "ids": ids, "conversations": conversations()}


def read(target: Path, request: dict[str, Any], packages: Path | None) -> dict[str, Any]:
    environment = dict(os.environ)
    if packages:
        environment["PYTHONPATH"] = str(packages)
    command = [sys.executable, str(READER), str(target)]
    done = subprocess.run(
        command, input=json.dumps(request), env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module", params=["4.57.6", "5.19"])
def answer(request: pytest.FixtureRequest, demo_target: Path, request_of_all: dict[str, Any]) -> dict[str, Any]:
    packages = None if request.param == "4.57.6" else request.getfixturevalue("transformers5")
    answer = read(demo_target, request_of_all, packages)
    assert answer["version"].startswith(request.param)
    return answer


def test_texts_become_the_ids_that_the_gguf_file_defines(answer: dict[str, Any], oracle: Oracle) -> None:
    for text, ids in zip(texts(), answer["encoded"], strict=True):
        assert ids == oracle.encode(text), repr(text)


def test_ids_become_the_text_that_the_gguf_file_defines(
    answer: dict[str, Any], oracle: Oracle, request_of_all: dict[str, Any]
) -> None:
    for ids, text in zip(request_of_all["ids"], answer["decoded"], strict=True):
        assert text == oracle.decode(ids)


def test_text_survives_the_round_trip(answer: dict[str, Any]) -> None:
    # Twenty-one bytes are no token, among them the control characters of one of these texts.
    decoded = answer["decoded"][: len(texts())]
    assert [text for text, back in zip(texts(), decoded, strict=True) if text != back] == [
        "control \x01\x04\x13\x1d end"
    ]


def test_special_tokens_are_those_of_the_gguf_file(answer: dict[str, Any], gguf: Path) -> None:
    names = {"bos": "bos_token_id", "eos": "eos_token_id", "padding": "pad_token_id", "unknown": "unk_token_id"}
    for in_gguf, in_transformers in names.items():
        assert answer["special_ids"][in_transformers] == field(gguf, f"tokenizer.ggml.{in_gguf}_token_id")
    assert answer["size"] == field(gguf, "llama.vocab_size")


def test_no_token_is_added_in_front(answer: dict[str, Any], gguf: Path) -> None:
    assert field(gguf, "tokenizer.ggml.add_bos_token") is False
    assert answer["encoded"][texts().index("")] == []


def test_chat_template_renders_as_the_gguf_file_says(answer: dict[str, Any], gguf: Path) -> None:
    environment = jinja2.sandbox.SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(field(gguf, "tokenizer.chat_template"))
    expected = [
        [template.render(messages=messages, add_generation_prompt=asking) for asking in (False, True)]
        for messages in conversations()
    ]
    assert answer["rendered"] == expected
    assert "You are a helpful AI assistant named SmolLM" in expected[0][0]


def test_generation_stops_at_the_end_of_a_turn(demo_target: Path, gguf: Path) -> None:
    settings = json.loads((demo_target / "generation_config.json").read_text("utf-8"))
    assert settings["eos_token_id"] == field(gguf, "tokenizer.ggml.eos_token_id") == 2


def test_the_oracle_splits_as_llama_cpp_does() -> None:
    # Worked out by hand from the two expressions.
    assert split("in 2024  it's\n\nok") == ["in", " ", "2", "0", "2", "4", " ", " it", "'s", "\n", "\n", "ok"]
    assert split("x  ") == ["x", "  "]
