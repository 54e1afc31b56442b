"""The engine to check the other by: plain transformers, one sample at a time, no batching to get wrong."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pipeline.extract.engines.local import LocalEngine
from pipeline.extract.engines.protocol import EngineOptions
from pipeline.verify.reference import ReferenceModel


class ReferenceEngine(LocalEngine):
    """Computes every sample alone; several times slower than vLLM on a GPU, about as fast on a CPU."""

    def __init__(self, options: EngineOptions) -> None:
        """Load the target.

        Raises:
            InputError, EngineError: as `ReferenceModel`.
        """
        super().__init__()
        self._layer_ids = options.layer_ids
        self._model: ReferenceModel | None = ReferenceModel(
            options.target.folder, options.dtype, trust_remote_code=options.trust_remote_code
        )

    def extract(self, samples: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """See `Engine.extract`."""
        assert self._model is not None, "extract() after close()"  # noqa: S101 - a bug, not a user's error
        return [self._model.states(list(sample), self._layer_ids).contiguous() for sample in samples]

    def close(self) -> None:
        """Free the target's memory."""
        super().close()
        self._model = None
