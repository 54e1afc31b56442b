"""What goes into a store: captured samples, and samples rejected with their reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # reading a manifest or a plan must not cost the import of torch
    import torch


@dataclass(frozen=True)
class Rejection:
    """A sample of the input that is in no shard."""

    id: str | None
    """the sample's id; None where the line did not even yield one"""
    reason: str
    """why, for people"""
    line: int
    """its line in tokenized.jsonl, from 1"""


@dataclass(frozen=True)
class CapturedSample:
    """A sample with the target's states for it.

    One row per token: `hidden_states` is `[rows, layers, hidden]`, on the CPU, contiguous; `input_ids` and
    `loss_mask` have `rows` entries.
    """

    id: str
    input_ids: list[int]
    loss_mask: list[int]
    hidden_states: torch.Tensor
