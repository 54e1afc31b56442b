"""Stores of a tiny random Llama, computed by transformers, and altered before they are written and sealed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.extract.digests import model_digest
from pipeline.store.manifest import store_identity
from pipeline.store.records import CapturedSample
from pipeline.store.spec import PLAIN_STORAGES
from pipeline.store.writer import Store
from pipeline.verify.reference import ReferenceModel
from tests.tiny_targets import VOCAB_SIZE, llama

LAYERS = (1, 2, 3, 5)
LENGTHS = (1, 5, 24, 24, 40, 60, 90, 120)

Captured = dict[str, torch.Tensor]
"""sample id: states `[rows, layers, hidden]`"""
Make = Callable[..., Path]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices this small only lose by being shared out, and lose much on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def tokens() -> dict[str, list[int]]:
    """Samples a to h of different lengths, two of the same; b is the beginning of h."""
    rng = random.Random(7)  # noqa: S311
    made = {name: [rng.randrange(VOCAB_SIZE) for _ in range(n)] for name, n in zip("abcdefgh", LENGTHS, strict=True)}
    return {**made, "b": made["h"][:5]}


@pytest.fixture(scope="session")
def right_states(target: Path, tokens: dict[str, list[int]]) -> dict[str, Captured]:
    """By dtype, what a right engine gives."""
    states = {}
    for dtype in ("float32", "bfloat16"):
        model = ReferenceModel(target, dtype)
        states[dtype] = {name: model.states(ids, LAYERS) for name, ids in tokens.items()}
    return states


@pytest.fixture
def make_store(
    tmp_path: Path, target: Path, tokens: dict[str, list[int]], right_states: dict[str, dict[str, torch.Tensor]]
) -> Make:
    """Makes a finished, sealed store of two units; `alter` changes the states before they are written."""

    def make(
        dtype: str = "float32", alter: Callable[[Captured], Any] = lambda _: None, storage: str | None = None
    ) -> Path:
        states = {name: tensor.clone() for name, tensor in right_states[dtype].items()}
        alter(states)
        identity = store_identity(
            engine="reference",
            dtype=dtype,
            storage=storage or PLAIN_STORAGES[dtype],
            hidden_size=128,
            num_layers=6,
            vocab_size=VOCAB_SIZE,
            output_layer_ids=LAYERS,
            digests={"data": "d", "model": model_digest(target), "stack": "s", "plan": "p"},
            settings={},
        )
        folder = tmp_path / "run" / "store"
        samples = [
            CapturedSample(name, ids, [1] * len(ids), states[name].to(getattr(torch, dtype)).contiguous())
            for name, ids in tokens.items()
        ]
        with Store.open_for_run(folder, identity, {"model_path": str(target)}) as store:
            store.write_unit(0, samples[:4])
            store.write_unit(1, samples[4:])
            store.finalise([], len(samples))
        return folder

    return make
