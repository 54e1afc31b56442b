"""Which samples of a unit make an engine fail, found by halving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pipeline.store.records import OrderedSample

Failure = Callable[[Sequence[OrderedSample]], str | None]
"""Computes samples and says why that failed, or None where it did not"""


class SortedOut(NamedTuple):
    """What was found."""

    parts: list[int]
    """sizes of parts that can be computed, in the samples' order, those that fail alone left out"""
    culprits: list[tuple[OrderedSample, str]]
    """samples that fail alone, with the reason"""


def sort_out(samples: Sequence[OrderedSample], failure: Failure, reason: str | None = None) -> SortedOut:
    """Halve a unit until what is left can be computed or is one sample.

    Args:
        samples: at least one.
        failure: tries some.
        reason: why all of them together are known to fail; tried first where not given.
    """
    reason = reason or failure(samples)
    if reason is None:
        return SortedOut([len(samples)], [])
    if len(samples) == 1:
        return SortedOut([], [(samples[0], reason)])
    half = len(samples) // 2
    left, right = (sort_out(part, failure) for part in (samples[:half], samples[half:]))
    return SortedOut(left.parts + right.parts, left.culprits + right.culprits)
