"""What goes into a store: units to write, captured samples, and samples rejected with their reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    line: int | None
    """its line in tokenized.jsonl, from 1; None where it is not known any more"""


def reason_kind(reason: str) -> str:
    """A reason without its numbers, so that like ones are counted together."""
    return re.sub(r"\d+", "…", reason)


@dataclass(frozen=True)
class OrderedSample:
    """A sample of a unit that is to be computed."""

    id: str
    line: int
    """in tokenized.jsonl, from 1"""
    input_ids: list[int]
    loss_mask: list[int]


@dataclass(frozen=True)
class UnitOrder:
    """A unit that is to be computed and written: what its writer must know beside the states."""

    unit: int
    samples: tuple[OrderedSample, ...]
    rejected: tuple[Rejection, ...] = ()
    """samples of the unit that are known to be impossible to capture"""

    @property
    def rows(self) -> int:
        """Rows of the states: all tokens, sample after sample."""
        return sum(len(sample.input_ids) for sample in self.samples)


@dataclass(frozen=True)
class CapturedSample:
    """A sample with the target's states for it.

    One row per token: `hidden_states` is `[rows, layers, hidden]`, on the CPU, contiguous; `input_ids` and
    `loss_mask` have `rows` entries.
    """

    id: str
    input_ids: Sequence[int]
    loss_mask: Sequence[int]
    hidden_states: torch.Tensor
    norms: torch.Tensor | None = None
    """L2 norms of the rows, float32 `[rows, layers]`, where they were computed beside the states already"""


@dataclass(frozen=True)
class UnitReport:
    """A unit that is on the disk: what the run is told of it."""

    unit: int
    samples: int
    rows: int
    bytes: int
    """of its shard file"""
    rejected: tuple[Rejection, ...]
