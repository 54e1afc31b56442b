"""The counts of a run, and how they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import AccountError
from pipeline.regenerate.unit import Answered, Outcome


@dataclass
class Account:
    """Running counts over all rows."""

    conversations: int = 0
    answers: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    retokenized: int = 0
    calls: int = 0
    cut: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    _examples: dict[str, str] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Count one row's outcome."""
        if not isinstance(outcome, Answered):
            self.rejected[outcome.reason] += 1
            self._examples.setdefault(outcome.reason, f"{outcome.source}:{outcome.line}: {outcome.detail}")
            return
        self.conversations += 1
        for name in ("answers", "tokens", "prompt_tokens", "retokenized", "calls"):
            setattr(self, name, getattr(self, name) + getattr(outcome, name))
        self.cut.update([outcome.cut] if outcome.cut else [])
        self.refused.update([outcome.refused] if outcome.refused else [])

    def close(self, rows_read: int) -> dict[str, Any]:
        """The counts for the header.

        Args:
            rows_read: counted where rows are read, not where they end up.

        Raises:
            AccountError: conversations and rejected rows are not all of them.
        """
        left_out = self.rejected.total()
        if self.conversations + left_out != rows_read:
            raise AccountError(f"{rows_read} rows read, but {self.conversations} answered and {left_out} rejected")
        return {
            "rows_read": rows_read,
            "conversations": self.conversations,
            "answers": self.answers,
            "tokens": self.tokens,
            "prompt_tokens": self.prompt_tokens,
            "retokenized_answers": self.retokenized,
            "kept_calls": self.calls,
            "cut": dict(sorted(self.cut.items())),
            "refused_by_prepare": dict(sorted(self.refused.items())),
            "rejected": dict(sorted(self.rejected.items())),
        }

    def lines(self, rows_read: int) -> Iterator[str]:
        """Tell the counts in a few lines."""
        yield (
            f"{self.conversations:,} conversations of {rows_read:,} rows, {self.answers:,} answers, "
            f"{self.tokens:,} tokens"
        )
        for reason, count in self.cut.most_common():
            yield f"{count:,} conversations end before the input's do, {reason}"
        if self.retokenized:
            yield f"{self.retokenized:,} answers are not the tokens that the target wrote when prepare reads them"
        for reason, count in self.refused.most_common():
            yield f"{count:,} conversations that prepare will refuse, {reason}"
        if self.calls:
            yield f"{self.calls:,} tool calls are kept from the input, and are not the target's"
        for reason, count in self.rejected.most_common():
            yield f"{count:,} rejected, {reason}; the first: {self._examples[reason]}"
