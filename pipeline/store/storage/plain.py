"""States as they were computed: one tensor, read as it lies."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pipeline.store.storage.protocol import Encoded, Tensors

_NAME = "hidden_states"


class Plain:
    """The states' own dtype, uncompressed."""

    def __init__(self, dtype: str) -> None:
        self.content_dtype = dtype

    def encode(self, states: torch.Tensor) -> Encoded:
        """See `Storage.encode`; nothing is copied."""
        return Encoded({_NAME: states}, (states,), self.content_dtype)

    def shapes(
        self, tensors: Tensors, offsets: Sequence[int], layers: int, hidden: int
    ) -> dict[str, tuple[str, list[int]]]:
        """See `Storage.shapes`."""
        return {_NAME: (self.content_dtype, [offsets[-1], layers, hidden])}

    def open(self, tensors: Tensors, offsets: Sequence[int], layers: int, hidden: int) -> PlainStates:
        """See `Storage.open`."""
        return PlainStates(tensors[_NAME], offsets)


class PlainStates:
    """Views of the shard's tensor."""

    def __init__(self, states: torch.Tensor, offsets: Sequence[int]) -> None:
        self._states = states
        self._offsets = offsets

    def sample(self, at: int) -> torch.Tensor:
        """See `ShardStates.sample`."""
        return self._states[self._offsets[at] : self._offsets[at + 1]]

    def mapped(self, at: int) -> tuple[torch.Tensor, ...]:
        """See `ShardStates.mapped`."""
        return (self.sample(at),)

    def pieces(self, at: int) -> dict[str, torch.Tensor]:
        """See `ShardStates.pieces`."""
        return {_NAME: self.sample(at)}

    def content(self, at: int) -> tuple[torch.Tensor, ...]:
        """See `ShardStates.content`."""
        return (self.sample(at),)
