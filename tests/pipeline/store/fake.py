"""A fake engine: states that are a pure function of the sample's number, so that runs can be compared by bits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from pipeline.store.committer import Committer
from pipeline.store.content import row_norms
from pipeline.store.manifest import store_identity
from pipeline.store.records import CapturedSample, OrderedSample, UnitOrder
from pipeline.store.spec import PLAIN_STORAGES

LAYERS = (1, 2, 3, 5)
HIDDEN = 8


def identity(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "engine": "fake",
        "dtype": "bfloat16",
        "hidden_size": HIDDEN,
        "num_layers": 6,
        "vocab_size": 100,
        "output_layer_ids": LAYERS,
        "digests": {"data": "d" * 64, "model": "e" * 64, "stack": "f" * 64, "plan": "0" * 64},
        "settings": {"tp_size": 1},
    }
    fields |= changes
    fields.setdefault("storage", PLAIN_STORAGES[fields["dtype"]])
    return store_identity(**fields)


def captured(number: int, dtype: torch.dtype = torch.bfloat16) -> CapturedSample:
    rng = random.Random(number)  # noqa: S311 - not for secrets
    rows = rng.randrange(1, 40)
    states = torch.randn(rows, len(LAYERS), HIDDEN, generator=torch.Generator().manual_seed(number))
    tokens = [rng.randrange(100) for _ in range(rows)]
    return CapturedSample(f"sample-{number}", tokens, [n % 2 for n in range(rows)], states.to(dtype))


def order(unit: int, numbers: Iterable[int]) -> tuple[UnitOrder, torch.Tensor, torch.Tensor]:
    """The unit of these samples as an engine's worker submits it: order, states, norms."""
    samples = [captured(number) for number in numbers]
    ordered = (
        OrderedSample(sample.id, number + 1, list(sample.input_ids), list(sample.loss_mask))
        for number, sample in zip(numbers, samples, strict=True)
    )
    states = torch.cat([sample.hidden_states for sample in samples])
    return UnitOrder(unit, tuple(ordered)), states, row_norms(states)


def submit(committer: Committer, unit: int, free: Callable[[], None] = lambda: None) -> None:
    """Hand a unit of three samples to a committer."""
    committer.submit(*order(unit, range(3 * unit, 3 * unit + 3)), free)


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a store, byte for byte, but its locks."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and not file.name.endswith("lock")
    }
