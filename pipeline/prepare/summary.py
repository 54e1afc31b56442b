"""The counts of a run, and how they are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import AccountError
from pipeline.prepare.reading import Reading
from pipeline.prepare.sample import DUPLICATE, Made, Outcome, Sample

EXAMPLES = 3
"""rows of each reason that are told"""


@dataclass
class Account:
    """Running counts over all rows.

    Attributes:
        rows_read: all of them: what was used, rejected, dropped as a duplicate, and left out by weight.
        duplicates: rows that gave nothing new.
        duplicate_samples: samples that were dropped from rows that gave others.
        left_out: rows not chosen, for each input with a weight.
        capped: rows taken, for each input whose cap was reached.
        formats: rows used, by the form they had.
        examples: for each reason, where its first rows stand and what was wrong.
    """

    rows_read: int = 0
    rows_used: int = 0
    samples: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    cut: int = 0
    straddling_tokens: int = 0
    duplicates: int = 0
    duplicate_samples: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    capped: dict[str, int] = field(default_factory=dict)
    formats: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Count one row's outcome."""
        if isinstance(outcome, Made):
            self.rows_used += 1
            self.duplicate_samples += outcome.dropped
            self.formats[outcome.form] = self.formats.get(outcome.form, 0) + 1
            for sample in outcome.samples:
                self._add(sample)
            return
        if outcome.reason == DUPLICATE:
            self.duplicates += 1
        else:
            self.rejected[outcome.reason] = self.rejected.get(outcome.reason, 0) + 1
        examples = self.examples.setdefault(outcome.reason, [])
        if len(examples) < EXAMPLES:
            examples.append((f"{outcome.source}:{outcome.line}", outcome.detail))

    def _add(self, sample: Sample) -> None:
        self.samples += 1
        self.tokens += sample.tokens
        self.trained_tokens += sample.trained
        self.cut += sample.cut
        self.straddling_tokens += sample.straddling

    def close(self, reading: Reading) -> dict[str, Any]:
        """The counts for the header.

        Args:
            reading: done; it has counted the rows by itself.

        Raises:
            AccountError: the rows that were read are not all accounted for.
        """
        self.rows_read, self.left_out, self.capped = reading.rows_read, reading.left_out, reading.capped
        rejected, left_out = sum(self.rejected.values()), sum(self.left_out.values())
        if self.rows_used + rejected + self.duplicates + left_out != self.rows_read:
            raise AccountError(
                f"{self.rows_read} rows read, but {self.rows_used} used, {rejected} rejected, {self.duplicates} "
                f"duplicates and {left_out} left out"
            )
        names = ("samples", "tokens", "trained_tokens", "rows_read", "rows_used", "cut", "straddling_tokens")
        more = ("duplicates", "duplicate_samples", "left_out", "capped")
        counts = {name: getattr(self, name) for name in (*names, *more)}
        sorted_ones = {name: dict(sorted(getattr(self, name).items())) for name in ("formats", "rejected")}
        examples = {reason: [": ".join(one) for one in rows] for reason, rows in sorted(self.examples.items())}
        return counts | sorted_ones | {"examples": examples}

    def lines(self, max_seq_len: int) -> Iterator[str]:
        """Tell the counts in a few lines."""
        share = self.trained_tokens / self.tokens if self.tokens else 0.0
        yield f"{self.samples:,} samples of {self.rows_read:,} rows, {self.tokens:,} tokens, {share:.1%} trained"
        if self.formats:
            yield "rows used: " + ", ".join(f"{count:,} {name}" for name, count in sorted(self.formats.items()))
        if self.cut:
            yield f"{self.cut:,} samples cut to {max_seq_len:,} tokens"
        if self.straddling_tokens:
            yield f"{self.straddling_tokens:,} tokens reach across an answer's border and are not trained"
        for name, count in self.left_out.items():
            yield f"{count:,} rows of {name} left out by its weight"
        for name, count in self.capped.items():
            yield f"{name} has reached its cap of {count:,} rows: what is behind them was not read"
        if self.duplicate_samples:
            yield f"{self.duplicate_samples:,} samples dropped that are the same as others, of rows that gave new ones"
        if self.duplicates:
            yield f"{self.duplicates:,} rows dropped, {DUPLICATE}; {self._first(DUPLICATE)}"
        yield from self.rejections()

    def rejections(self) -> Iterator[str]:
        """A line for each reason, the most frequent first."""
        for reason, count in sorted(self.rejected.items(), key=lambda item: (-item[1], item[0])):
            yield f"{count:,} rejected, {reason}; {self._first(reason)}"

    def _first(self, reason: str) -> str:
        (place, detail), *more = self.examples[reason]
        others = f"; then {', '.join(place for place, _ in more)}" if more else ""
        return f"the first: {place}: {detail}{others}"
