"""The counts of a run, and how they are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import AccountError
from pipeline.prepare.encode import Encoded
from pipeline.prepare.sample import Rejected, Sample


@dataclass
class Account:
    """Running counts over all rows."""

    rows_read: int = 0
    rows_used: int = 0
    samples: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    cut: int = 0
    straddling_tokens: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    first_example: dict[str, str] = field(default_factory=dict)

    def add(self, outcome: list[Sample] | Rejected) -> None:
        """Count one row's outcome."""
        if not isinstance(outcome, Rejected):
            self.rows_used += 1
            for sample in outcome:
                self._add(sample.encoded)
            return
        self.rejected[outcome.reason] = self.rejected.get(outcome.reason, 0) + 1
        self.first_example.setdefault(outcome.reason, f"{outcome.source}:{outcome.line}: {outcome.detail}")

    def _add(self, encoded: Encoded) -> None:
        self.samples += 1
        self.tokens += len(encoded.input_ids)
        self.trained_tokens += sum(encoded.loss_mask)
        self.cut += encoded.full_length > len(encoded.input_ids)
        self.straddling_tokens += encoded.straddling

    def close(self) -> dict[str, Any]:
        """The counts for the header.

        Raises:
            AccountError: used and rejected rows are not all the rows that were read.
        """
        left_out = sum(self.rejected.values())
        if self.rows_used + left_out != self.rows_read:
            raise AccountError(f"{self.rows_read} rows read, but {self.rows_used} used and {left_out} rejected")
        names = ("samples", "tokens", "trained_tokens", "rows_read", "rows_used", "cut", "straddling_tokens")
        return {**{name: getattr(self, name) for name in names}, "rejected": dict(sorted(self.rejected.items()))}

    def lines(self, max_seq_len: int) -> Iterator[str]:
        """Tell the counts in a few lines."""
        share = self.trained_tokens / self.tokens if self.tokens else 0.0
        yield f"{self.samples:,} samples of {self.rows_read:,} rows, {self.tokens:,} tokens, {share:.1%} trained"
        if self.cut:
            yield f"{self.cut:,} samples cut to {max_seq_len:,} tokens"
        if self.straddling_tokens:
            yield f"{self.straddling_tokens:,} tokens reach across an answer's border and are not trained"
        for reason, count in sorted(self.rejected.items(), key=lambda item: (-item[1], item[0])):
            yield f"{count:,} rejected, {reason}; the first: {self.first_example[reason]}"
