"""What a draft would be worth when served: how many of its proposals the target would take.

A greedy target takes a proposed token if it is the one it would have chosen itself, of its whole vocabulary, and only
if it took those before. With a(k) the share of proposals k+1 that are taken where the k before were, a step of the
target yields 1 + a(0) + a(0)a(1) + ... tokens: the acceptance length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

import torch

_ROWS = 1024
"""rows whose logits are computed at once: 0.7 GB in float32 for 163,840 tokens"""


@dataclass(frozen=True)
class Acceptance:
    """Counts over a set of samples, by step of the draft."""

    taken: tuple[int, ...]
    """proposals taken at each step"""
    proposed: tuple[int, ...]
    """proposals whose predecessors were taken, at each step"""

    @property
    def shares(self) -> list[float]:
        """a(k) for each step."""
        return [taken / max(proposed, 1) for taken, proposed in zip(self.taken, self.proposed, strict=True)]

    @property
    def length(self) -> float:
        """The acceptance length."""
        return 1.0 + sum(accumulate(self.shares, mul))


def count(
    proposals: Sequence[torch.Tensor], choices: torch.Tensor, trained: torch.Tensor, documents: torch.Tensor
) -> torch.Tensor:
    """Count over one packed batch.

    Args:
        proposals: for each step the draft's tokens, as ids of the target, `[rows]`.
        choices: the target's own token after each row, `[rows]`.
        trained: bool `[rows]`: whether the row is trained on.
        documents: int `[rows]`: the sample each row belongs to.

    Returns:
        int64 `[2, steps]`: taken, and proposed.
    """
    taken_so_far = torch.ones_like(trained)
    counts = []
    for step, tokens in enumerate(proposals):
        rows = len(trained) - step
        own = trained[step:] & trained[:rows] & (documents[step:] == documents[:rows])
        asked = taken_so_far[:rows] & own
        taken_so_far = asked & (tokens[:rows] == choices[step:])
        counts.append(torch.stack([taken_so_far.sum(), asked.sum()]))
    return torch.stack(counts, dim=1)


class Choices:
    """The target's own choice after each row: the argmax of its logits over its whole vocabulary, in float32.

    Validation batches are the same in every epoch, so each is computed once, and the output layer let go of then.
    """

    def __init__(self, norm: torch.nn.Module, head: torch.Tensor) -> None:
        """Nothing is computed yet.

        Args:
            norm: the target's final norm.
            head: its output layer, `[vocabulary, hidden]`, float32.
        """
        self._norm: torch.nn.Module = norm
        self._head: torch.Tensor | None = head
        self._known: list[torch.Tensor] = []

    @torch.no_grad()
    def of(self, number: int, last_states: torch.Tensor) -> torch.Tensor:
        """Token ids `[rows]` for the un-normed last states `[rows, hidden]` of batch `number`; at first in order."""
        if number == len(self._known):
            assert self._head is not None  # noqa: S101 - for the type checker; `complete` comes after the last batch
            head = self._head.to(last_states.device)
            pieces = [(self._norm(piece.float()) @ head.T).argmax(dim=-1) for piece in last_states.split(_ROWS)]
            self._known.append(torch.cat(pieces).cpu())
        return self._known[number].to(last_states.device)

    def complete(self) -> None:
        """Every batch was seen once."""
        self._head = None
