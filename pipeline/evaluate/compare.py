"""Greedy answers with and without a draft, token by token; where they part, whether the target itself was undecided.

Verifying several tokens at once multiplies matrices of other shapes than computing one does, so sums are taken in
another order and logits differ in their last bits. Where the two largest are nearer than that, either may win: a
*near-tie*, and no fault of the draft's. What follows the first difference differs for good and says nothing.

The bound. Each of n decoder layers adds to the residual stream twice, each time with a relative error r: the rounding
of the dtype or, where that is larger, of the sums of `hidden` products, which every dtype takes in float32, and which
are off by about sqrt(hidden) roundings. 2n errors of independent sign add up to r sqrt(2n): a logit of size L is off by
L r sqrt(2n). There are two logits, each computed twice. Rounding to nearest is off by half a spacing at most, and
errors of independent sign add up by their squares: sqrt(4) / 2 = 1 times that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.evaluate.account import Answer
from pipeline.extract.target import Target

SPACING = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""relative distance of neighbouring values"""


@dataclass(frozen=True, kw_only=True)
class Parting:
    """Where an answer with a draft leaves the one without."""

    id: str
    position: int
    """in the answer, from 0"""
    without: int | None
    """the token without the draft; None: the answer had ended"""
    given: int | None
    """the token with it"""


@dataclass(frozen=True, kw_only=True)
class Traced:
    """A parting, with what the target computes there."""

    parting: Parting
    gap: float | None
    """between the logits of the two tokens; None: a token is not among the largest, or an answer had ended"""
    bound: float
    """what two computations of this gap may differ by"""

    @property
    def near_tie(self) -> bool:
        """Whether either token could have won."""
        return self.gap is not None and self.gap <= self.bound


def partings(without: Sequence[Answer], given: Sequence[Answer]) -> list[Parting]:
    """The first difference of each pair of answers that differ.

    Args:
        without: the target's own answers.
        given: those with a draft, in the same order.
    """
    found = []
    for one, other in zip(without, given, strict=True):
        position = _first_difference(one.token_ids, other.token_ids)
        if position is not None:
            left, right = (_at(answer.token_ids, position) for answer in (one, other))
            found.append(Parting(id=one.id, position=position, without=left, given=right))
    return found


def trace(parting: Parting, logits: dict[int, float], target: Target, dtype: str) -> Traced:
    """Judge a parting.

    Args:
        parting: the difference.
        logits: the target's largest ones at that position, by token id.
        target: for its size.
        dtype: that the target computed in.
    """
    pair = [logits.get(token) for token in (parting.without, parting.given) if token is not None]
    known = [value for value in pair if value is not None]
    gap = abs(known[0] - known[1]) if len(known) == 2 else None
    return Traced(parting=parting, gap=gap, bound=noise_bound(max(map(abs, logits.values())), target, dtype))


def noise_bound(logit: float, target: Target, dtype: str) -> float:
    """How far the gap of two logits may differ between two computations, see above.

    Args:
        logit: their size.
        target: its layers and hidden size.
        dtype: that it computes in.
    """
    rounding = max(SPACING[dtype], SPACING["float32"] * math.sqrt(target.hidden_size))
    return logit * rounding * math.sqrt(2 * target.num_layers)


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    for position, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return position
    return None if len(one) == len(other) else min(len(one), len(other))


def _at(tokens: Sequence[int], position: int) -> int | None:
    return tokens[position] if position < len(tokens) else None
