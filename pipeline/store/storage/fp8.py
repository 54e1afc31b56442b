"""Half the bytes of bfloat16, at a loss that is measured: e4m3 values under one float32 scale per row and layer.

A row's largest magnitude becomes 448, the largest that float8_e4m3fn has (OCP 8-bit floating point specification,
revision 1.0, table 1). Its 3 mantissa bits leave an error of at most 2^-4 of each value down to 2^-6 / 448 of the row's
largest, and below that at most 2^-10 / 448 of the largest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from pipeline.store.storage.protocol import Encoded, Tensors

_VALUES, _SCALES = "hidden_states", "scales"
_LARGEST = torch.finfo(torch.float8_e4m3fn).max
_SMALLEST_SCALE = torch.finfo(torch.float32).tiny
"""A smaller one would be rounded so much that values under it pass 448."""
_CHUNK = 16
"""rows at a time: they stay in a core's cache"""
# torch converts from e4m3 one value after the other; a table of its 256 values is twice as fast.
_TABLE = torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn).float().numpy()


class Fp8:
    """`hidden_states` as float8_e4m3fn `[rows, layers, hidden]` and `scales` as float32 `[rows, layers]`.

    A state is value times scale, in float32, rounded to bfloat16.
    """

    content_dtype = "float8_e4m3fn"

    def encode(self, states: torch.Tensor) -> Encoded:
        """See `Storage.encode`."""
        largest = states.abs().amax(dim=-1).float()
        scales = torch.where(largest == 0, 1.0, (largest / _LARGEST).clamp_min(_SMALLEST_SCALE))
        values = torch.empty(states.shape, dtype=torch.float8_e4m3fn)
        square_error = torch.zeros(states.shape[1], dtype=torch.float64)
        for part in _chunks(len(states)):
            values[part] = states[part] / scales[part, :, None]  # divided in float32
            lost = _decoded(values[part], scales[part]).double() - states[part].double()
            square_error += lost.square_().sum(dim=(0, 2))
        return Encoded({_VALUES: values, _SCALES: scales}, (values, scales), self.content_dtype, square_error)

    def shapes(
        self, tensors: Tensors, offsets: Sequence[int], layers: int, hidden: int
    ) -> dict[str, tuple[str, list[int]]]:
        """See `Storage.shapes`."""
        rows = offsets[-1]
        return {_VALUES: (self.content_dtype, [rows, layers, hidden]), _SCALES: ("float32", [rows, layers])}

    def open(self, tensors: Tensors, offsets: Sequence[int], layers: int, hidden: int) -> Fp8States:
        """See `Storage.open`."""
        return Fp8States(tensors[_VALUES], tensors[_SCALES], offsets)


class Fp8States:
    """Decodes the samples that are asked for."""

    def __init__(self, values: torch.Tensor, scales: torch.Tensor, offsets: Sequence[int]) -> None:
        self._values = values
        self._scales = scales
        self._offsets = offsets

    def sample(self, at: int) -> torch.Tensor:
        """See `ShardStates.sample`."""
        values, scales = self.content(at)
        states = torch.empty(values.shape, dtype=torch.bfloat16)
        for part in _chunks(len(values)):
            states[part] = _decoded(values[part], scales[part])
        return states

    def mapped(self, at: int) -> tuple[torch.Tensor, ...]:
        """See `ShardStates.mapped`."""
        return self.content(at)

    def pieces(self, at: int) -> dict[str, torch.Tensor]:
        """See `ShardStates.pieces`."""
        values, scales = self.content(at)
        return {_VALUES: values, _SCALES: scales}

    def content(self, at: int) -> tuple[torch.Tensor, ...]:
        """See `ShardStates.content`."""
        rows = slice(self._offsets[at], self._offsets[at + 1])
        return self._values[rows], self._scales[rows]


def _decoded(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    wide = torch.from_numpy(_TABLE.take(values.view(torch.uint8).numpy()))
    return wide.mul_(scales[:, :, None]).bfloat16()


def _chunks(rows: int) -> Iterator[slice]:
    yield from (slice(start, start + _CHUNK) for start in range(0, rows, _CHUNK))
