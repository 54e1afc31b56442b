"""Distances between states and a reference. States are `[rows, layers, hidden]`, in any dtype; sums are in float32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

_CHUNK = 256
"""rows of logits at a time: 256 x 163,840 float32 are 168 MB"""


@dataclass
class Checked:
    """A sample of the store and what it is compared with."""

    id: str
    unit: int
    input_ids: list[int]
    stored: torch.Tensor
    truth: torch.Tensor
    """the reference's states in float32"""
    noise: torch.Tensor | None
    """the reference's states in the store's dtype, where that is not float32"""
    logits: LogitDifference | None = None
    """from the stored last states; None where the last layer was not captured"""
    noise_logits: LogitDifference | None = None
    """from the noise's last states"""


@dataclass
class LogitDifference:
    """How two predictions differ, per row."""

    logprob: torch.Tensor
    """largest difference of a log-probability, over the vocabulary; `[rows]`"""
    same_top: torch.Tensor
    """whether the most likely token is the same; `[rows]`"""


def row_errors(states: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """|x - t| / |t| of every row and layer, float32 `[rows, layers]`; infinite where a value is not finite."""
    wanted = truth.float()
    errors = torch.linalg.vector_norm(states.float() - wanted, dim=-1) / _norms(wanted)
    return errors.nan_to_num(nan=torch.inf)


def frobenius_errors(states: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """The relative Frobenius error of every layer of a sample, `[layers]`; infinite where a value is not finite."""
    wanted = truth.float()
    size = torch.linalg.vector_norm(wanted, dim=(0, 2)).clamp_min(torch.finfo(torch.float32).tiny)
    return (torch.linalg.vector_norm(states.float() - wanted, dim=(0, 2)) / size).nan_to_num(nan=torch.inf)


def row_scales(states: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """The factor a that makes a t closest to x, <x, t> / <t, t>, of every row and layer; `[rows, layers]`."""
    wanted = truth.float()
    return (states.float() * wanted).sum(-1) / _norms(wanted).square()


def logit_difference(logits: torch.Tensor, truth: torch.Tensor) -> LogitDifference:
    """Compare two models' logits `[rows, vocabulary]`."""
    pieces = [_differences(*pair) for pair in zip(logits.split(_CHUNK), truth.split(_CHUNK), strict=True)]
    return LogitDifference(torch.cat([piece[0] for piece in pieces]), torch.cat([piece[1] for piece in pieces]))


def runs(rows: torch.Tensor) -> Iterator[tuple[int, int]]:
    """First and last of each run of neighbouring row numbers."""
    numbers = rows.tolist()
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield numbers[start], numbers[at - 1]
            start = at


def _norms(truth: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(truth, dim=-1).clamp_min(torch.finfo(torch.float32).tiny)


def _differences(logits: torch.Tensor, truth: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    ours, theirs = (torch.log_softmax(side.float(), dim=-1) for side in (logits, truth))
    largest = (ours - theirs).abs().amax(dim=-1).nan_to_num(nan=torch.inf)
    return largest, ours.argmax(dim=-1) == theirs.argmax(dim=-1)
