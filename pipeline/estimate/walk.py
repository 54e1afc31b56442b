"""From "which draft tokens are right where" to what a server counts. Nothing here knows a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from pipeline.estimate.truth import UNKNOWN, Answer


@dataclass
class Counts:
    """What vLLM counts while it serves, and how often the draft is right anywhere."""

    steps: int
    """tokens proposed a round"""
    drafts: int = 0
    """rounds"""
    tokens: int = 0
    """tokens of the answers"""
    accepted_per_position: list[int] = field(default_factory=list)
    unknown: int = 0
    """rounds whose next draft token lies after the answer's end where the store does not tell what is right; it
    counts as not accepted"""
    right: list[int] = field(default_factory=list)
    """by step: draft tokens that are right where all before them are, over all positions of the answers"""
    asked: list[int] = field(default_factory=list)
    """by step: positions where all before it are right"""

    def __post_init__(self) -> None:
        for counter in (self.accepted_per_position, self.right, self.asked):
            counter.extend([0] * (self.steps - len(counter)))

    @property
    def accepted(self) -> int:
        """Draft tokens accepted."""
        return sum(self.accepted_per_position)

    @property
    def acceptance_length(self) -> float:
        """Tokens a round: those accepted and the target's own, 1 + accepted / drafts (vLLM, `SpecDecodingLogging`)."""
        return 1 + self.accepted / self.drafts

    @property
    def conditional_accuracy(self) -> list[float]:
        """By step, the share that is right where all before it are."""
        return [right / asked if asked else 0.0 for right, asked in zip(self.right, self.asked, strict=True)]

    def add(self, drafted: torch.Tensor, truth: torch.Tensor, answer: Answer) -> None:
        """Count one answer.

        Args:
            drafted: target ids that the draft proposes, `[steps, rows - 1]`: column i are the tokens for positions
                i + 2 and on, from a round in which the states up to row i and the token at i + 1 are known.
            truth: see `tokens_to_come`.
            answer: which turn.
        """
        steps, columns = drafted.shape
        due = truth[2:].unfold(0, steps, 1)[:columns].T
        hits, known = (drafted == due).cpu(), (due != UNKNOWN).cpu()
        self.tokens += answer.end - answer.start
        for column, accepted in _rounds(hits, answer):
            self.drafts += 1
            for position in range(accepted):
                self.accepted_per_position[position] += 1
            self.unknown += accepted < steps and not bool(known[accepted, column])
        before = torch.ones(columns, dtype=torch.bool)
        for step in range(steps):
            inside = slice(answer.start - 1, max(answer.end - 2 - step, answer.start - 1))
            self.asked[step] += int(before[inside].sum())
            before &= hits[step]
            self.right[step] += int(before[inside].sum())


def _rounds(hits: torch.Tensor, answer: Answer) -> Iterator[tuple[int, int]]:
    """The rounds of one answer: their column, and how many draft tokens each accepts.

    The answer's first token comes out of the prefill. A round that begins with the token at position p known gives the
    longest right prefix of its draft and one token more, the target's own. The answer is over when its last token is
    there.
    """
    column = answer.start - 1
    while column + 1 < answer.end - 1:
        accepted = int(hits[:, column].long().cumprod(0).sum())
        yield column, accepted
        column += accepted + 1
