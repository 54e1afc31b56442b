"""What bench.read reads."""

from __future__ import annotations

from pathlib import Path

import torch

from pipeline.store.export import export
from pipeline.store.manifest import store_identity
from pipeline.store.records import CapturedSample
from pipeline.store.writer import Store

STORAGES = ("bf16", "bf16-zstd")
LAYERS, HIDDEN = (1, 14, 26, 29), 2048
ROWS = tuple(range(200, 2001, 15))
"""of the samples; 2.2 GB with these layers"""
UNIT = 8
"""samples; 8,800 rows on average, as of a unit of extract"""


def make_store(folder: Path, storage: str) -> Path:
    """A store of made-up states, the same ones in every storage: normal, with a scale for each layer."""
    identity = store_identity(
        engine="bench",
        dtype="bfloat16",
        storage=storage,
        hidden_size=HIDDEN,
        num_layers=30,
        vocab_size=1000,
        output_layer_ids=LAYERS,
        digests=dict.fromkeys(("data", "model", "stack", "plan"), "0" * 64),
        settings={},
    )
    numbers = torch.randperm(len(ROWS), generator=torch.Generator().manual_seed(0)).tolist()
    with Store.open_for_run(folder, identity) as store:
        for unit, start in enumerate(range(0, len(ROWS), UNIT)):
            store.write_unit(unit, [_sample(number) for number in numbers[start : start + UNIT]])
        store.finalise([], len(ROWS))
    return folder


def make_pickles(store: Path, folder: Path) -> Path:
    """The .pt samples of a store."""
    export(store, folder, "speculators-0.3.0")
    return folder


def _sample(number: int) -> CapturedSample:
    rows = ROWS[number]
    states = torch.randn(rows, len(LAYERS), HIDDEN, generator=torch.Generator().manual_seed(number))
    states *= torch.tensor([0.1, 1.0, 5.0, 60.0])[:, None]
    return CapturedSample(str(number), [number] * rows, [1] * rows, states.bfloat16())
