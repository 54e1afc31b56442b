"""A fake engine: states that are a pure function of the sample's number, so that runs can be compared by bits."""

from __future__ import annotations

import random
from typing import Any

import torch

from pipeline.store.manifest import store_identity
from pipeline.store.records import CapturedSample

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
    fields.setdefault("storage", {"bfloat16": "bf16", "float32": "fp32"}[fields["dtype"]])
    return store_identity(**fields)


def captured(number: int, dtype: torch.dtype = torch.bfloat16) -> CapturedSample:
    rng = random.Random(number)  # noqa: S311 - not for secrets
    rows = rng.randrange(1, 40)
    states = torch.randn(rows, len(LAYERS), HIDDEN, generator=torch.Generator().manual_seed(number))
    tokens = [rng.randrange(100) for _ in range(rows)]
    return CapturedSample(f"sample-{number}", tokens, [n % 2 for n in range(rows)], states.to(dtype))
