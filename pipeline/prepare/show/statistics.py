"""Counts over a whole result, in one pass and in memory that does not grow with it.

In: `tokenized.jsonl` and `rejected.jsonl`. Out: numbers, histograms, and how much of the trained text a draft's
vocabulary would cover, defined as in training: the share of trained tokens that the most frequent ones are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.prepare.header import DATA, REJECTED
from pipeline.prepare.show.samples import read_objects

SHARE_BINS = 20


@dataclass
class Statistics:
    """Of a result of prepare."""

    samples: int = 0
    tokens: int = 0
    trained: int = 0
    """tokens"""
    longest: int = 0
    """tokens of the longest sample"""
    lengths: Counter[int] = field(default_factory=Counter)
    """samples by bin of length: bin b holds lengths from 2**b to below 2**(b + 1)"""
    shares: list[int] = field(default_factory=lambda: [0] * SHARE_BINS)
    """samples by share of trained tokens, in bins of equal width from 0 to 1; the last holds 1 too"""
    rejected: Counter[str] = field(default_factory=Counter)
    """rows by reason"""
    frequency: Counter[int] = field(default_factory=Counter)
    """how often each token id is trained on"""

    def add(self, loss_mask: list[int], input_ids: list[int]) -> None:
        """Count a sample."""
        length = len(input_ids)
        chosen = [token for token, one in zip(input_ids, loss_mask, strict=True) if one]
        self.samples += 1
        self.tokens += length
        self.trained += len(chosen)
        self.longest = max(self.longest, length)
        self.frequency.update(chosen)
        if length:
            self.lengths[length.bit_length() - 1] += 1
            self.shares[min(len(chosen) * SHARE_BINS // length, SHARE_BINS - 1)] += 1

    def coverage(self) -> dict[int, float]:
        """The share of trained tokens that the most frequent k cover, for k = 1, 2, 4, ... and all of them."""
        counts = sorted(self.frequency.values(), reverse=True)
        covered, reached = 0, {}
        for size, count in enumerate(counts, 1):
            covered += count
            if size & (size - 1) == 0 or size == len(counts):
                reached[size] = covered / self.trained
        return reached

    def covering(self, share: float) -> int:
        """The fewest tokens that cover at least this share of the trained ones; 0 if none is trained."""
        covered = 0
        for size, count in enumerate(sorted(self.frequency.values(), reverse=True), 1):
            covered += count
            if covered >= share * self.trained:
                return size
        return 0


def count(folder: Path) -> Statistics:
    """Read a result through.

    Args:
        folder: prepare's output folder.

    Raises:
        InputError: a file is missing, or not as prepare writes it.
    """
    found = Statistics()
    for sample in read_objects(folder / DATA):
        found.add(sample["loss_mask"], sample["input_ids"])
    found.rejected.update(row["reason"] for row in read_objects(folder / REJECTED))
    return found
