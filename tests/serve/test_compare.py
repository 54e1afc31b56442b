"""Where answers part, and what counts as a near-tie."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.evaluate.account import Answer
from pipeline.evaluate.compare import Parting, noise_bound, partings, trace
from pipeline.extract.target import Target

TARGET = Target(
    folder=Path("target"), num_layers=32, hidden_size=1024, vocab_size=128, max_positions=None, dtype="float32"
)
PARTING = Parting(id="a", position=3, without=7, given=9)


def answer(name: str, *tokens: int) -> Answer:
    return Answer(id=name, token_ids=list(tokens), finish="stop", seconds=1.0, accepted=None)


def test_the_first_difference_is_found_and_equal_answers_have_none() -> None:
    without = [answer("a", 1, 2, 3, 4), answer("b", 5, 6), answer("c", 1)]
    given = [answer("a", 1, 9, 8, 4), answer("b", 5, 6), answer("c", 2)]
    assert partings(without, given) == [
        Parting(id="a", position=1, without=2, given=9),
        Parting(id="c", position=0, without=1, given=2),
    ]


def test_an_answer_that_goes_on_parts_where_the_other_ends() -> None:
    assert partings([answer("a", 1, 2)], [answer("a", 1, 2, 3)]) == [Parting(id="a", position=2, without=None, given=3)]


def test_the_bound_is_the_formula_in_numbers() -> None:
    # 2^-23 * 32 (sqrt of 1024) * 8 (sqrt of 64 additions) * 16; bfloat16: 2^-7 * 8 * 16
    assert noise_bound(16.0, TARGET, "float32") == pytest.approx(2.0**-23 * 32 * 8 * 16)
    assert noise_bound(16.0, TARGET, "bfloat16") == pytest.approx(1.0)


@pytest.mark.parametrize(("gap", "near"), [(4e-4, True), (6e-4, False)])
def test_a_gap_counts_as_a_near_tie_only_within_the_noise(gap: float, near: bool) -> None:
    traced = trace(PARTING, {7: 16.0, 9: 16.0 - gap, 3: 1.0}, TARGET, "float32")  # the bound is 4.9e-4
    assert traced.gap == pytest.approx(gap)
    assert traced.near_tie is near


def test_a_token_that_is_not_among_the_largest_is_no_near_tie() -> None:
    traced = trace(PARTING, {7: 16.0, 3: 15.9}, TARGET, "bfloat16")
    assert (traced.gap, traced.near_tie) == (None, False)


def test_an_answer_that_had_ended_is_no_near_tie() -> None:
    ended = Parting(id="a", position=3, without=None, given=9)
    assert not trace(ended, {7: 16.0, 9: 16.0}, TARGET, "bfloat16").near_tie
