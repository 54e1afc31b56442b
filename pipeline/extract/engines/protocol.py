"""What an engine is to the rest of the stage, and how one is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pipeline.extract.target import Target
from pipeline.store.records import UnitOrder

if TYPE_CHECKING:
    import torch

    from pipeline.store.committer import Committed
    from pipeline.store.spec import StoreSpec


class Engine(Protocol):
    """Computes the states of a unit's samples, in one call, whatever other units came before."""

    @property
    def alive(self) -> bool:
        """Whether it can compute; not after its process died."""

    def extract(self, samples: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """The states of samples, in their order, brought to the caller.

        Args:
            samples: token ids, 1 to `EngineOptions.max_seq_len` each, all in the vocabulary.

        Returns:
            One tensor a sample, `[rows, layers, hidden]`, on the CPU, contiguous, in the dtype asked for: row i is
            token i, layers in the order of `layer_ids`, each the state after that decoder layer, before any final norm.

        Raises:
            EngineError: the engine cannot go on.
        """

    def write_to(self, spec: StoreSpec) -> None:
        """Become the writer of a store: `capture` from now on leaves the states there.

        Raises:
            EngineError: it failed.
            StoreBusyError: another process still writes to it.
        """

    def capture(self, order: UnitOrder, passes: Sequence[int]) -> Committed:
        """Compute a unit's states and have them written; returns as soon as they are computed.

        Waits first while two units' states are in memory already.

        Args:
            order: the unit.
            passes: how many samples to compute at a time: all of them, unless that fails.

        Returns:
            What became of this unit and those before it by now.

        Raises:
            EngineError: it failed to compute the unit, nothing of which is written.
        """

    def check(self, samples: Sequence[Sequence[int]]) -> None:
        """Compute samples and drop their states.

        Raises:
            EngineError: it failed.
        """

    def finish(self) -> Committed:
        """Wait until all captured units are on the disk."""

    def kill(self) -> None:
        """End the engine's processes at once, from another thread: a call that hangs then raises `EngineError`."""

    def close(self) -> None:
        """End the engine's processes and free its memory; a second call does nothing."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What both engines are told; fields as in `ExtractSettings`, `dtype` settled."""

    target: Target
    layer_ids: tuple[int, ...]
    dtype: str
    max_seq_len: int
    batch_size: int
    token_budget: int
    tp_size: int
    gpu_memory_utilization: float
    trust_remote_code: bool
    unit_deadline: int


def start_engine(name: str, options: EngineOptions) -> Engine:
    """Start an engine by its name; loads the target.

    Raises:
        EngineError: it does not start.
    """
    if name == "reference":
        from pipeline.extract.engines.reference import ReferenceEngine

        return ReferenceEngine(options)
    from pipeline.extract.engines.speculators import SpeculatorsEngine

    return SpeculatorsEngine(options)
