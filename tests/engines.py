"""The real engine and its independent check, for tests: speculators' generator on vLLM, and plain transformers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

LAYERS = [1, 2, 5]
CPU_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_MLA_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "auto",
    # An engine that is kept for later tests must not spin on a core that others need.
    "VLLM_SLEEP_WHEN_IDLE": "1",
}


@contextmanager
def generator(target: Path, worker_extension_cls: str | None = None, **options: Any) -> Iterator[Any]:
    """A `VllmHiddenStatesGenerator` in float32 on a tiny target, ended at the end."""
    os.environ.update(CPU_ENVIRONMENT)
    if options.get("tensor_parallel_size") == 2:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"
    from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator

    named = {"worker_extension_cls": worker_extension_cls} if worker_extension_cls else {}
    made = type("Generator", (VllmHiddenStatesGenerator,), named)(
        str(target), **{"layer_ids": LAYERS, "max_model_len": 1025, "dtype": "float32"} | options
    )
    try:
        yield made
    finally:
        made.executor.shutdown()


def random_samples(lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    """Samples of these lengths, token ids 4 to 127."""
    source = torch.Generator().manual_seed(seed)
    return [torch.randint(4, 128, (length,), generator=source).tolist() for length in lengths]


def by_transformers(target: Path, layers: Sequence[int] = LAYERS) -> Callable[[list[int]], torch.Tensor]:
    """States computed by transformers in float32, one sample at a time, from hooks on its decoder layers.

    Returns:
        A function from token ids to `[rows, layers, hidden]`.
    """
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    seen: dict[int, torch.Tensor] = {}

    def remember(layer: int) -> Callable[..., None]:
        def hook(module: torch.nn.Module, args: Any, output: Any) -> None:
            seen[layer] = (output[0] if isinstance(output, tuple) else output).reshape(-1, model.config.hidden_size)

        return hook

    for layer in layers:
        model.model.layers[layer].register_forward_hook(remember(layer))

    def states(ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            model(torch.tensor([ids]))
        return torch.stack([seen[layer] for layer in layers], dim=1)

    return states


def worst_error(captured: Sequence[Any], expected: Sequence[torch.Tensor]) -> float:
    """The largest relative Frobenius error over samples and layers.

    Args:
        captured: what `generate()` returned.
        expected: for each sample `[rows, layers, hidden]`.
    """
    assert len(captured) == len(expected)
    worst = 0.0
    for result, truth in zip(captured, expected, strict=True):
        states = torch.stack(result["hidden_states"], dim=1)
        assert states.shape == truth.shape, f"rows, layers, hidden: {list(states.shape)}, not {list(truth.shape)}"
        errors = (states - truth).norm(dim=(0, 2)) / truth.norm(dim=(0, 2))
        worst = max(worst, float(errors.max()))
    return worst
