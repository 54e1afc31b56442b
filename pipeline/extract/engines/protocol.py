"""What an engine is to the rest of the stage, and how one is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pipeline.extract.target import Target

if TYPE_CHECKING:
    import torch


class Engine(Protocol):
    """Computes the states of a unit's samples, in one call, whatever other units came before."""

    def extract(self, samples: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """The states of samples, in their order.

        Args:
            samples: token ids, 1 to `EngineOptions.max_seq_len` each, all in the vocabulary.

        Returns:
            One tensor a sample, `[rows, layers, hidden]`, on the CPU, contiguous, in the dtype asked for: row i is
            token i, layers in the order of `layer_ids`, each the state after that decoder layer, before any final norm.

        Raises:
            EngineError: the engine cannot go on.
        """

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
