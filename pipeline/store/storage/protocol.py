"""What a storage is to the shard's writer and reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Encoded:
    """One sample's states as they go into a shard."""

    pieces: dict[str, torch.Tensor]
    """by name of the shard's tensor; the pieces of all samples are joined along their first dimension"""
    content: tuple[torch.Tensor, ...]
    """what the content sha256 covers in place of the states: the states themselves where nothing is lost"""
    content_dtype: str
    """of the first of these, as torch names it"""
    square_error: torch.Tensor | None = None
    """float64 `[layers]`: squared differences from the computed states added up; None where nothing is lost"""


class ShardStates(Protocol):
    """The states in one shard."""

    def sample(self, at: int) -> torch.Tensor:
        """`[rows, layers, hidden]` of the shard's sample number `at`, in the store's dtype.

        Raises:
            ValueError: what lies there cannot be decoded.
        """

    def mapped(self, at: int) -> tuple[torch.Tensor, ...]:
        """The parts of the shard's tensors that most of that sample lies in."""

    def pieces(self, at: int) -> dict[str, torch.Tensor]:
        """That sample as `Storage.encode` gave it, see `Encoded.pieces`: it goes into another shard as it is."""

    def content(self, at: int) -> tuple[torch.Tensor, ...]:
        """What the content sha256 of that sample covers in place of its states, see `Encoded.content`.

        Raises:
            ValueError: what lies there cannot be decoded, or is not what was written although it can.
        """


class Storage(Protocol):
    """One way for states to lie in a shard."""

    content_dtype: str
    """see `Encoded.content_dtype`"""

    def encode(self, states: torch.Tensor) -> Encoded:
        """Encode one sample.

        Args:
            states: `[rows, layers, hidden]`, on the CPU, contiguous; the result may refer to its memory.
        """

    def shapes(
        self, tensors: Tensors, offsets: Sequence[int], layers: int, hidden: int
    ) -> dict[str, tuple[str, list[int]]]:
        """Dtype (as torch names it) and shape that each of the storage's tensors of a shard must have.

        Args:
            tensors: those of the shard, for storages whose sizes depend on the content.
            offsets: first row of each sample, and the number of rows.
            layers: captured layers.
            hidden: the target's hidden size.

        Raises:
            ValueError: the tensors that would tell it are missing or wrong.
        """

    def open(self, tensors: Tensors, offsets: Sequence[int], layers: int, hidden: int) -> ShardStates:
        """Read a shard, whose tensors have the shapes above; the arguments are those of `shapes`.

        Raises:
            KeyError: a tensor is missing.
            ValueError: the tensors do not fit each other.
        """
