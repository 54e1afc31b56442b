"""The real engine, supervised: its forward pass fails, hangs or kills it, and the store has all that can be had."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.errors import NoSpaceError
from pipeline.extract.engines.protocol import EngineOptions
from pipeline.extract.engines.speculators import SpeculatorsEngine
from pipeline.extract.supervise import Supervisor
from pipeline.extract.target import read_target
from pipeline.store.manifest import store_identity
from pipeline.store.reader import StoreReader
from pipeline.store.records import OrderedSample, UnitOrder
from pipeline.store.writer import Store
from tests.engines import CPU_ENVIRONMENT, by_transformers, random_samples
from tests.pipeline.extract.test_supervise import Notebook

LAYERS = (1, 2, 5)
POISON = 3
"""A token that random samples do not hold."""


def poison(worker: Any, deed: str, once: str) -> None:
    """Runs in the worker: its forward pass does something bad in layer 3 where a token of the batch is the poison.

    Args:
        worker: vLLM's.
        deed: "fail", "hang" or "die".
        once: a file; where it exists nothing happens, and it is made by the deed. Empty: every time.
    """
    import os
    import time
    from pathlib import Path

    seen = {"poison": False}

    def look(module: Any, args: Any) -> None:
        seen["poison"] = bool((args[0] == 3).any())

    def act(module: Any, args: Any) -> None:
        if not seen["poison"] or (once and Path(once).exists()):
            return
        if once:
            Path(once).touch()
        if deed == "die":
            os._exit(9)
        if deed == "hang":
            time.sleep(600)
        raise RuntimeError("poisoned")

    model = worker.model_runner.model.model
    model.embed_tokens.register_forward_pre_hook(look)
    model.layers[3].register_forward_pre_hook(act)


class Run:
    """A supervised run of the real engine on the tiny target."""

    def __init__(self, target: Path, folder: Path) -> None:
        self.target, self.notes, self.starts = target, Notebook(), 0
        read = read_target(target)
        identity = store_identity(
            engine="speculators",
            dtype="float32",
            storage="fp32",
            hidden_size=read.hidden_size,
            num_layers=read.num_layers,
            vocab_size=read.vocab_size,
            output_layer_ids=LAYERS,
            digests=dict.fromkeys(("data", "model", "stack", "plan"), "0" * 64),
            settings={},
        )
        self.store = Store.open_for_run(folder, identity)

    def start(self, prepare: Callable[[SpeculatorsEngine], None]) -> SpeculatorsEngine:
        self.starts += 1
        engine = SpeculatorsEngine(
            EngineOptions(
                target=read_target(self.target),
                layer_ids=LAYERS,
                dtype="float32",
                max_seq_len=512,
                batch_size=16,
                token_budget=2048,
                tp_size=1,
                gpu_memory_utilization=0.8,
                trust_remote_code=False,
                unit_deadline=600,
            )
        )
        prepare(engine)
        return engine

    def __call__(self, prepare: Callable[[SpeculatorsEngine], None], *orders: UnitOrder, deadline: float = 60) -> None:
        with Supervisor(partial(self.start, prepare), self.store.spec, deadline, self.notes) as engine:
            for order in orders:
                engine.capture(order)
            engine.finish()

    def stored(self) -> dict[str, torch.Tensor]:
        reader = StoreReader(self.store.folder)
        return {name: reader.sample(name).hidden_states for name in reader.ids()}


@pytest.fixture
def run(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    for name, value in CPU_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    made = Run(llama, tmp_path / "store")
    yield made
    made.store.close()


@pytest.fixture(scope="module")
def truth(llama: Path) -> Callable[[list[int]], torch.Tensor]:
    return by_transformers(llama, LAYERS)


def orders(*units: list[list[int]]) -> list[UnitOrder]:
    return [
        UnitOrder(at, tuple(OrderedSample(f"{at}.{n}", n + 1, ids, [1] * len(ids)) for n, ids in enumerate(unit)))
        for at, unit in enumerate(units)
    ]


def told(deed: str, once: str = "") -> Callable[[SpeculatorsEngine], None]:
    return lambda engine: engine._generator.executor.collective_rpc(poison, args=(deed, once))


def test_a_sample_that_fails_the_forward_pass_is_rejected_and_all_others_are_the_targets(run, truth):
    first, second, third = random_samples([40, 90, 60]), random_samples([30], seed=1), random_samples([70, 20], seed=2)
    bad = [*first[:1], [7, POISON, 9], *first[1:]]
    run(told("fail"), *orders(bad, second, third))
    stored = run.stored()
    assert sorted(stored) == ["0.0", "0.2", "0.3", "1.0", "2.0", "2.1"]
    for name, ids in zip(sorted(stored), [*first, *second, *third], strict=True):
        expected = truth(ids)
        assert (stored[name] - expected).norm() <= 1e-5 * expected.norm(), name
    assert run.starts == 1, "an exception in a forward pass does not cost the engine"


def test_an_engine_that_hangs_and_one_that_dies_are_started_again_and_nothing_is_lost(run, truth, tmp_path):
    samples = random_samples([40, 90])
    hanging, dying = [7, POISON, 9], [8, POISON]

    def prepare(engine: SpeculatorsEngine) -> None:
        told("hang", str(tmp_path / "hung"))(engine)
        told("die", str(tmp_path / "died"))(engine)

    run(prepare, *orders([samples[0], hanging], [samples[1]], [dying]), deadline=8)
    stored = run.stored()
    assert sorted(stored) == ["0.0", "0.1", "1.0", "2.0"]
    for name, ids in zip(sorted(stored), [samples[0], hanging, samples[1], dying], strict=True):
        expected = truth(ids)
        assert (stored[name] - expected).norm() <= 1e-5 * expected.norm(), name
    assert run.starts == 3


def test_nothing_but_small_records_crosses_the_engines_rpc_channel(run, monkeypatch):
    sizes: list[int] = []

    def watch(engine: SpeculatorsEngine) -> None:
        executor = engine._generator.executor
        call = executor.collective_rpc

        def measured(method: Any, *rest: Any, **named: Any) -> Any:
            answer = call(method, *rest, **named)
            sizes.append(len(pickle.dumps((rest, named.get("args"), answer))))
            return answer

        monkeypatch.setattr(executor, "collective_rpc", measured)

    samples = random_samples([500, 500, 500, 500])
    run(watch, *orders(samples))
    assert sum(state.nbytes for state in run.stored().values()) == 2000 * 3 * 128 * 4
    assert max(sizes) < 40_000, "of 3 MB of states"


def fill_the_disk(worker: Any, after: int) -> None:
    """Runs in the worker: from so many syncs on the disk is full."""
    import errno
    import os

    sync, left = os.fsync, after

    def full(handle: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    os.fsync = full


def test_a_disk_that_fills_up_under_the_worker_ends_the_run_between_two_units(run, truth):
    samples = random_samples([40, 90, 60, 30])
    # A unit takes four: of its shard, the folder, its record and the folder.
    with pytest.raises(NoSpaceError, match="free some and run again, finished units are kept"):
        run(
            lambda engine: engine._generator.executor.collective_rpc(fill_the_disk, args=(6,)),
            *orders(*([s] for s in samples)),
        )
    assert run.store.finished_units() == {0}
    run(lambda engine: None, *orders(*([s] for s in samples))[1:])
    for at, ids in enumerate(samples):
        expected = truth(ids)
        assert (run.stored()[f"{at}.0"] - expected).norm() <= 1e-5 * expected.norm()
