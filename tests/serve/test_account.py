"""Tokens, steps and accepted draft tokens add up, or the run fails."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pipeline.errors import AccountError
from pipeline.evaluate.account import Account, Answer, Counters, close_account


def answer(tokens: int, accepted: list[int], name: str = "a") -> Answer:
    return Answer(id=name, token_ids=list(range(tokens)), finish="length", seconds=1.0, accepted=accepted)


# By hand: a is 1 + (1+3) + (1+0) + (1+2) = 9 tokens, none cut; b 1 + (1+1) + (1+3) = 7, of which 2 are cut.
ANSWERS = [answer(9, [3, 0, 2], "a"), answer(5, [1, 3], "b")]
COUNTERS = Counters(steps=7, generated=14, drafts=5, draft_tokens=15, accepted=9, accepted_per_position=(4, 3, 2))


def test_a_right_account_is_closed_with_the_tokens_that_were_cut() -> None:
    assert close_account(ANSWERS, COUNTERS, 1) == Account(
        first_tokens=2, cut=2, acceptance_length_from_steps=(14 + 2 - 2) / 5
    )


def test_acceptance_length_from_steps_is_that_from_accepted_tokens() -> None:
    assert close_account(ANSWERS, COUNTERS, 1).acceptance_length_from_steps == COUNTERS.acceptance_length == 1 + 9 / 5


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"steps": 8}, "engine steps"),
        ({"generated": 13}, "output tokens"),
        ({"drafts": 6}, "verification steps"),
        ({"accepted": 8}, "accepted draft tokens"),
        ({"accepted_per_position": (4, 4, 1)}, "position 2"),
    ],
)
def test_a_counter_that_does_not_fit_the_answers_is_named(change: dict[str, Any], what: str) -> None:
    with pytest.raises(AccountError, match=what):
        close_account(ANSWERS, dataclasses.replace(COUNTERS, **change), 1)


@pytest.mark.parametrize("tokens", [4, 8])
def test_an_answer_may_lose_only_what_its_last_step_accepted(tokens: int) -> None:
    with pytest.raises(AccountError, match="answer b"):
        close_account([ANSWERS[0], answer(tokens, [1, 3][::-1] if tokens == 4 else [1, 3], "b")], COUNTERS, 1)


def test_prompts_that_share_steps_are_not_counted_by_steps() -> None:
    shared = dataclasses.replace(COUNTERS, steps=4)
    assert close_account(ANSWERS, shared, 2).acceptance_length_from_steps is None


def test_an_answer_of_one_token_needs_no_step() -> None:
    counters = Counters(steps=1, generated=1, drafts=0, accepted_per_position=(0, 0, 0))
    assert close_account([answer(1, [])], counters, 1) == Account(
        first_tokens=1, cut=0, acceptance_length_from_steps=1.0
    )
