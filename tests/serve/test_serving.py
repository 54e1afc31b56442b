"""The stage with the real engine, on targets and drafts whose figures are known beforehand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.serve import rigged
from tests.serve.conftest import Run, read_answers, write_prompts

LENGTH = 24
DRAFT_TOKENS = 3


@pytest.fixture(scope="module")
def cyclic(evaluate: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on one prompt of each cycle; the folder of its output, the table in `stdout`."""
    folder = tmp_path_factory.mktemp("cyclic")
    target, draft = rigged.cyclic_target(folder / "target"), rigged.cyclic_draft(folder / "draft")
    prompts = write_prompts(folder / "prompts.jsonl", [40, 9, 8], [8, 90, 48], [50, 60, 88])
    code, output, errors = evaluate(
        *("--model-path", target, "--draft", f"rigged={draft}", "--input", prompts),
        *("--output-dir", folder / "out", "--max-new-tokens", LENGTH),
        *("--num-speculative-tokens", DRAFT_TOKENS),
    )
    assert code == 0, errors
    (folder / "out" / "stdout").write_text(output)
    return folder / "out"


@pytest.fixture(scope="module")
def report(cyclic: Path) -> dict[str, Any]:
    return json.loads((cyclic / "evaluation.json").read_text())


def simulated(last: int) -> list[int]:
    """Draft tokens accepted per step of an answer, by the definition of speculative decoding."""
    token, tokens, accepted = rigged.following(last), 1, []
    while tokens < LENGTH:
        right, guess = 0, token
        for _ in range(DRAFT_TOKENS):
            guess = rigged.drafted(guess)
            if guess != rigged.following(token):
                break
            token, right = guess, right + 1
        token = rigged.following(token)
        accepted.append(right)
        tokens += 1 + right
    return accepted


def test_a_draft_that_is_always_right_has_every_token_accepted(cyclic: Path) -> None:
    accepted = read_answers(cyclic)["rigged"]["p0"]["accepted"]
    assert accepted == [DRAFT_TOKENS] * len(accepted)
    assert len(accepted) == -(-(LENGTH - 1) // (1 + DRAFT_TOKENS))


def test_a_draft_that_is_always_wrong_has_none_accepted(cyclic: Path) -> None:
    assert read_answers(cyclic)["rigged"]["p1"]["accepted"] == [0] * (LENGTH - 1)


def test_a_draft_that_is_right_every_second_time_has_half_accepted(cyclic: Path) -> None:
    assert read_answers(cyclic)["rigged"]["p2"]["accepted"] == simulated(88)


def test_the_answers_are_the_targets_with_the_draft_and_without(cyclic: Path) -> None:
    answers = read_answers(cyclic)
    for name, last in (("p0", 8), ("p1", 48), ("p2", 88)):
        expected = [rigged.following(last)]
        while len(expected) < LENGTH:
            expected.append(rigged.following(expected[-1]))
        assert answers["no draft"][name]["token_ids"] == answers["rigged"][name]["token_ids"] == expected


def test_the_report_adds_up_to_what_was_simulated(report: dict[str, Any]) -> None:
    steps = [count for last in (8, 48, 88) for count in simulated(last)]
    found = report["drafts"]["rigged"]
    assert found["drafts"] == len(steps)
    assert found["draft_tokens"] == DRAFT_TOKENS * len(steps)
    assert found["accepted"] == sum(steps)
    assert found["accepted_per_position"] == [sum(count > place for count in steps) for place in range(DRAFT_TOKENS)]
    assert found["acceptance_length"] == pytest.approx(1 + sum(steps) / len(steps))
    assert found["account"]["acceptance_length_from_steps"] == pytest.approx(found["acceptance_length"])
    assert found["account"]["cut"] == 3 + sum(steps) + len(steps) - 3 * LENGTH
    assert report["no_draft"]["engine_steps"] == report["no_draft"]["tokens"] == 3 * LENGTH
    assert found["engine_steps"] == 3 + len(steps)
    assert (found["same_answers"], found["differences"]) == (3, [])


def test_the_table_is_printed_and_kept(cyclic: Path, report: dict[str, Any]) -> None:
    output = (cyclic / "stdout").read_text()
    assert output == (cyclic / "evaluation.txt").read_text()
    assert f"{report['drafts']['rigged']['acceptance_length']:.3f}" in output
    assert "3 of 3" in output


def test_random_target_and_draft_give_the_answers_of_transformers(evaluate: Run, tmp_path: Path) -> None:
    target, draft = rigged.random_target(tmp_path / "target"), rigged.random_draft(tmp_path / "draft")
    prompts = [[9, 20, 31], [100, 7, 64, 12], [55]]
    code, _, errors = evaluate(
        *("--model-path", target, "--draft", f"random={draft}", "--output-dir", tmp_path / "out"),
        *("--input", write_prompts(tmp_path / "prompts.jsonl", *prompts), "--max-new-tokens", LENGTH),
    )
    assert code == 0, errors
    answers = read_answers(tmp_path / "out")
    for number, prompt in enumerate(prompts):
        expected = greedy(target, prompt)
        assert answers["no draft"][f"p{number}"]["token_ids"] == expected
        assert answers["random"][f"p{number}"]["token_ids"] == expected


def greedy(target: Path, prompt: list[int]) -> list[int]:
    """An answer by transformers, one token at a time."""
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    tokens = list(prompt)
    while len(tokens) < len(prompt) + LENGTH and tokens[-1] != 1:
        with torch.no_grad():
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]
