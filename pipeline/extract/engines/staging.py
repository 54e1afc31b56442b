"""Host memory that a unit's states are brought to as they are computed, and from which they are written."""

from __future__ import annotations

import queue
from collections.abc import Sequence

import torch

from pipeline.store.content import row_norms

BUFFERS = 2
"""One unit is computed while the one before it is written; more would only hide a disk that is too slow."""

Segment = tuple[int, int, int]
"""(first row in the unit, first row in the forward pass, end row in the forward pass)"""


class HostBuffer:
    """Room for one unit: `states` `[rows, layers, hidden]`, `norms` float32 `[rows, layers]`, `filled` bool `[rows]`.

    Pinned where there is a CUDA device, so that copies to it run beside the forward pass.
    """

    def __init__(self, rows: int, layers: int, hidden: int, dtype: torch.dtype, *, pinned: bool) -> None:
        self.states = torch.empty(rows, layers, hidden, dtype=dtype, pin_memory=pinned)
        self.norms = torch.empty(rows, layers, pin_memory=pinned)
        self.filled = torch.zeros(rows, dtype=torch.bool)
        self.copied: torch.cuda.Event | None = None
        """happens when all copies so far are done; None where they are done at once"""

    def wait(self) -> None:
        """Return when all copies are done; holds no lock of the interpreter meanwhile."""
        if self.copied is not None:
            self.copied.synchronize()


class Staging:
    """A worker's buffers, of which it holds one at a time; the writer gives them back."""

    def __init__(self, device: torch.device, rows: int, layers: int, hidden: int, dtype: torch.dtype) -> None:
        """Allocate the buffers.

        Args:
            device: the states' own.
            rows: most in a unit.
            layers: captured.
            hidden: the target's hidden size.
            dtype: of the states.
        """
        on_cuda = device.type == "cuda"
        self._side = torch.cuda.Stream(device) if on_cuda else None
        self._free: queue.SimpleQueue[HostBuffer] = queue.SimpleQueue()
        for _ in range(BUFFERS):
            self._free.put(HostBuffer(rows, layers, hidden, dtype, pinned=on_cuda))

    def take(self, rows: int) -> HostBuffer:
        """A buffer, as soon as one is free, with nothing filled of its first `rows` rows."""
        buffer = self._free.get()
        buffer.filled[:rows] = False
        buffer.copied = None
        return buffer

    def give_back(self, buffer: HostBuffer) -> None:
        """Let the next unit have it."""
        self._free.put(buffer)

    def copy(self, layers: Sequence[torch.Tensor], segments: Sequence[Segment], buffer: HostBuffer) -> None:
        """Bring the rows of one forward pass to their places.

        On a CUDA device the copies wait for the forward pass's stream so far, on a stream of their own, and the forward
        pass goes on at once; the memory they read is not given to others before they are done.

        Args:
            layers: the captured states, `[tokens of the pass, hidden]` each.
            segments: which rows go where.
            buffer: the unit's.
        """
        for first, start, end in segments:
            buffer.filled[first : first + end - start] = True
        if self._side is None:
            for first, start, end in segments:
                place = slice(first, first + end - start)
                torch.stack([layer[start:end] for layer in layers], dim=1, out=buffer.states[place])
                buffer.norms[place] = row_norms(buffer.states[place])
            return
        states = torch.stack(list(layers), dim=1)
        norms = row_norms(states)
        self._side.wait_stream(torch.cuda.current_stream(states.device))
        with torch.cuda.stream(self._side):
            for first, start, end in segments:
                place = slice(first, first + end - start)
                buffer.states[place].copy_(states[start:end], non_blocking=True)
                buffer.norms[place].copy_(norms[start:end], non_blocking=True)
            buffer.copied = torch.cuda.Event()
            buffer.copied.record(self._side)
        states.record_stream(self._side)
        norms.record_stream(self._side)
