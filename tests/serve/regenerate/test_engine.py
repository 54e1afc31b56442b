"""The real engine on the demo target: what it writes is what transformers writes, and a kill changes nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.engines import CPU_ENVIRONMENT
from tests.serve.regenerate.conftest import assistant, user

CHECKOUT = Path(__file__).resolve().parents[3]
ROWS: list[dict[str, Any]] = [
    {"prompt": "What is the capital of France?"},
    {"messages": [user("What is 2 + 2?"), assistant("7"), user("Say it in one word.")]},
    {"prompt": "Name a color."},
    {"prompt": "Say hello."},
    {"prompt": "What is the capital of Italy?"},
    {"messages": [{"role": "system", "content": "You answer in one word."}, user("What do bees make?")]},
]
MOST = 48


@pytest.fixture(scope="module")
def start(
    demo_target: Path, stack_json: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., subprocess.Popen[str]]:
    """Starts the stage in float32 in a process of its own, one answer at a time: units of four rows."""
    prompts = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    flags = ["--dtype", "float32", "--batch-size", "1", "--max-new-tokens", str(MOST), "--max-model-len", "512"]
    where = ["--input", str(prompts), "--model-path", str(demo_target)]
    # One thread: at one row a step two would do little but wait for each other.
    threads = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    more = {"EYAS_STACK_JSON": str(stack_json), "VLLM_CPU_KVCACHE_SPACE": "1"}
    variables = os.environ | CPU_ENVIRONMENT | threads | more

    def begin(out: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pipeline", "regenerate", *where, *flags, "--output-dir", str(out)]
        return subprocess.Popen(command, cwd=CHECKOUT, env=variables, stderr=subprocess.PIPE, text=True)

    return begin


@pytest.fixture(scope="module")
def whole(start: Callable[..., subprocess.Popen[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was not ended."""
    out = tmp_path_factory.mktemp("whole") / "out"
    finish(start(out))
    return out


def finish(process: subprocess.Popen[str]) -> None:
    try:
        _, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 0, errors


def test_greedy_answers_are_those_of_transformers(whole: Path, demo_target: Path, tokenizer: Any) -> None:
    model = AutoModelForCausalLM.from_pretrained(demo_target, dtype=torch.float32).eval()
    answered = {
        row["id"]: row["messages"] for row in map(json.loads, (whole / "conversations.jsonl").read_text().splitlines())
    }
    rejected = {
        row["id"]: row["reason"] for row in map(json.loads, (whole / "rejected.jsonl").read_text().splitlines())
    }
    compared = 0
    for number, row in enumerate(ROWS, 1):
        messages = row.get("messages") or [user(row["prompt"])]
        expected: list[dict[str, str]] = []
        for message in [*messages, {"role": "assistant"}][: len(messages) + 1]:
            if message["role"] != "assistant":
                expected.append(message)
                continue
            text = by_transformers(model, tokenizer, expected)
            if text is None:
                break
            compared += 1
            expected.append(assistant(text))
        last = max((place for place, message in enumerate(expected) if message["role"] == "assistant"), default=-1)
        if last == -1:
            assert rejected[f"prompts:{number}"] == "unfinished"
        else:
            assert answered[f"prompts:{number}"] == expected[: last + 1]
    assert compared >= 4


def by_transformers(model: Any, tokenizer: Any, messages: list[dict[str, str]]) -> str | None:
    """The greedy answer; None if it is not finished in time."""
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(text, add_special_tokens=False, return_tensors="pt")
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    written = model.generate(**prompt, do_sample=False, max_new_tokens=MOST, eos_token_id=end)[0]
    produced = written[prompt["input_ids"].shape[1] :].tolist()
    return tokenizer.decode(produced[:-1]) if produced[-1] == end else None


def test_killed_between_two_units_and_run_again_the_result_is_the_same(
    start: Callable[..., subprocess.Popen[str]], whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = start(out)
    while not (out / "units" / "000000.jsonl").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (out / "conversations.jsonl").exists(), "it was killed too late"
    finish(start(out))
    for name in ("conversations.jsonl", "rejected.jsonl", "conversations.header.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    events = [json.loads(line) for line in (out / "logs" / "events.jsonl").read_text().splitlines()]
    assert [event["unit"] for event in events if event["event"] == "unit"][-1:] == [1]
    assert [event["done"] for event in events if event["event"] == "start"] == [0, 4]
