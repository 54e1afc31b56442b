"""An engine that fails is tried again, started again, and relieved of samples it cannot do; nothing else is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.errors import EngineError, NoSpaceError
from pipeline.extract.engines.local import LocalEngine
from pipeline.extract.sort_out import sort_out
from pipeline.extract.supervise import Supervisor
from pipeline.store.committer import Committed
from pipeline.store.records import OrderedSample, UnitOrder
from pipeline.store.sidecar import read_sidecar
from pipeline.store.writer import Store
from tests.pipeline.store.fake import HIDDEN, LAYERS, identity

POISON = 66


class FakeEngine(LocalEngine):
    """States that depend on the token alone; fails as it is told, before any state is handed over."""

    def __init__(self, fails: Callable[[list[list[int]]], str | None]) -> None:
        super().__init__()
        self._fails = fails
        self.alive = True
        self.passes: list[list[int]] = []
        self.killed = threading.Event()

    def extract(self, samples: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        if reason := self._fails([list(sample) for sample in samples]):
            if reason == "dies":
                self.alive = False
            if reason == "hangs":
                assert self.killed.wait(60)
                self.alive = False
            raise EngineError(reason)
        return [
            torch.tensor(list(ids), dtype=torch.bfloat16)[:, None, None].expand(-1, len(LAYERS), HIDDEN).contiguous()
            for ids in samples
        ]

    def capture(self, order: UnitOrder, passes: Sequence[int]) -> Committed:
        assert self.alive, "a dead engine was used"
        self.passes.append(list(passes))
        return super().capture(order, passes)

    def kill(self) -> None:
        self.killed.set()


class Notebook:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.units: list[int] = []

    def event(self, name: str, **fields: Any) -> None:
        self.events.append((name, fields))

    def unit_done(self, report: Any) -> None:
        self.units.append(report.unit)


def order(unit: int, *tokens: int) -> UnitOrder:
    """A unit of samples of three tokens each, the last of which is given."""
    samples = [OrderedSample(f"{unit}.{at}", at + 1, [1, 2, token], [0, 1, 1]) for at, token in enumerate(tokens)]
    return UnitOrder(unit, tuple(samples))


class Run:
    """A supervised run of fake engines into a store."""

    def __init__(self, folder: Path, fails: Callable[[list[list[int]]], str | None], deadline: float = 60) -> None:
        self.notes = Notebook()
        self.engines: list[FakeEngine] = []
        self.store = Store.open_for_run(folder, identity())
        self._fails, self._deadline = fails, deadline

    def _start(self) -> FakeEngine:
        self.engines.append(FakeEngine(self._fails))
        return self.engines[-1]

    def __call__(self, *orders: UnitOrder) -> None:
        with Supervisor(self._start, self.store.spec, self._deadline, self.notes) as engine:
            for each in orders:
                engine.capture(each)
            engine.finish()

    def samples(self, unit: int) -> list[str]:
        return [sample.id for sample in read_sidecar(self.store.folder, unit).samples]

    def rejected(self, unit: int) -> list[tuple[str | None, int, str]]:
        return [(r.id, r.line, r.reason) for r in read_sidecar(self.store.folder, unit).rejected]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Run]:
    return lambda fails, **options: Run(tmp_path / "store", fails, **options)


def poisoned(samples: list[list[int]]) -> str | None:
    return "bad token" if any(POISON in sample for sample in samples) else None


class Times:
    """Fails the first few times that a sample is computed which is not the probe."""

    def __init__(self, times: int, reason: str, when: Callable[[list[list[int]]], bool] = lambda samples: True) -> None:
        self.left, self.reason, self.when = times, reason, when

    def __call__(self, samples: list[list[int]]) -> str | None:
        if samples == [[0]] or not self.left or not self.when(samples):
            return None
        self.left -= 1
        return self.reason


def test_without_failures_every_unit_is_one_pass_of_one_engine(run):
    made = run(lambda samples: None)
    made(order(0, 5, 6), order(1, 7))
    assert [engine.passes for engine in made.engines] == [[[2], [1]]]
    assert (made.notes.units, made.notes.events) == ([0, 1], [])
    assert (made.samples(0), made.samples(1)) == (["0.0", "0.1"], ["1.0"])


def test_a_unit_that_fails_once_is_computed_again_as_it_was(run):
    made = run(Times(1, "a hiccup"))
    made(order(0, 5, 6))
    assert [engine.passes for engine in made.engines] == [[[2], [2]]]
    assert (made.samples(0), made.rejected(0)) == (["0.0", "0.1"], [])


@pytest.mark.parametrize("tokens", [(POISON, 5, 6, 7, 8), (5, 6, POISON, 7, 8), (5, POISON, 6, 7, POISON)], ids=str)
def test_the_samples_that_fail_alone_are_rejected_with_the_reason_and_the_rest_is_one_pass(run, tokens):
    made = run(poisoned)
    made(order(0, *tokens), order(1, 9))
    good = [f"0.{at}" for at, token in enumerate(tokens) if token != POISON]
    assert made.samples(0) == good
    reason = "the target cannot be run on it: bad token"
    assert made.rejected(0) == [(f"0.{at}", at + 1, reason) for at, token in enumerate(tokens) if token == POISON]
    assert made.samples(1) == ["1.0"]
    (engine,) = made.engines
    assert engine.passes == [[5], [5], [len(good)], [1]]


def test_a_unit_that_is_all_one_bad_sample_leaves_a_record_and_no_shard(run):
    made = run(poisoned)
    made(order(0, POISON), order(1, 9))
    assert (made.samples(0), [r[0] for r in made.rejected(0)]) == ([], ["0.0"])
    assert not (made.store.folder / "shards/000000.safetensors").exists()


def test_a_unit_that_fails_only_as_a_whole_is_computed_in_parts_and_none_is_rejected(run):
    made = run(lambda samples: "out of memory" if len(samples) > 2 else None)
    made(order(0, 5, 6, 7, 8, 9))
    assert made.samples(0) == ["0.0", "0.1", "0.2", "0.3", "0.4"]
    assert made.rejected(0) == []


def test_a_dead_engine_is_started_again_and_the_unit_computed(run):
    made = run(Times(1, "dies"))
    made(order(0, 5, 6))
    assert [engine.passes for engine in made.engines] == [[[2]], [[2]]]
    assert made.rejected(0) == []


def test_an_engine_that_gives_no_answer_is_ended_and_started_again(run):
    made = run(Times(1, "hangs"), deadline=0.2)
    made(order(0, 5, 6))
    assert len(made.engines) == 2
    assert made.rejected(0) == []
    failed = [fields["error"] for name, fields in made.notes.events if name == "engine failed"]
    assert failed == ["the engine gave no answer within 0 s (--unit-deadline)"]


def test_an_engine_that_fails_on_the_simplest_sample_as_well_is_started_again_before_any_sample_is_blamed(run):
    made = run(lambda samples: "broken" if made.engines[-1] is made.engines[0] else None)
    made(order(0, 5, 6))
    assert len(made.engines) == 2
    assert made.rejected(0) == []


def test_units_that_were_computed_but_not_written_when_the_engine_died_are_computed_again(run, monkeypatch):
    made = run(Times(1, "dies", when=lambda samples: samples[0][2] == 7))
    written = FakeEngine.capture

    def lose(engine: FakeEngine, each: UnitOrder, passes: Sequence[int]) -> Committed:
        if each.unit < 2 and engine is made.engines[0]:
            return Committed([], None)  # computed, and on its way to the disk when the process ends
        return written(engine, each, passes)

    monkeypatch.setattr(FakeEngine, "capture", lose)
    made(order(0, 5), order(1, 6), order(2, 7))
    assert sorted(made.notes.units) == [0, 1, 2]
    assert made.store.finished_units() == {0, 1, 2}


def test_a_unit_that_was_written_when_the_engine_died_is_counted_and_not_computed_again(run, monkeypatch):
    made = run(Times(1, "dies", when=lambda samples: samples[0][2] == 6))
    written = FakeEngine.capture

    def untold(engine: FakeEngine, each: UnitOrder, passes: Sequence[int]) -> Committed:
        result = written(engine, each, passes)
        if each.unit == 0:
            engine.finish()  # its report is lost with the process
            return Committed([], None)
        return result

    monkeypatch.setattr(FakeEngine, "capture", untold)
    made(order(0, 5), order(1, 6))
    assert made.notes.units == [0, 1]
    assert [engine.passes for engine in made.engines] == [[[1], [1]], [[1]]]


def test_an_engine_that_fails_on_everything_ends_the_run_and_no_sample_is_rejected(run):
    made = run(lambda samples: "dies" if samples != [[0]] else None)
    with pytest.raises(EngineError, match="started again 12 times without one unit done: dies"):
        made(*(order(unit, *range(20)) for unit in range(3)))
    assert made.store.finished_units() == set()


def test_many_samples_in_a_row_that_all_fail_end_the_run(run):
    made = run(lambda samples: "no" if samples != [[0]] else None)
    with pytest.raises(EngineError, match="9 samples failed one after the other, so it is not the samples: no"):
        made(*(order(unit, 5) for unit in range(20)))
    assert made.store.finished_units() == set(range(8))


def test_what_stops_the_writer_ends_the_run(run, monkeypatch):
    made = run(lambda samples: None)

    def full(*_: Any) -> None:
        raise NoSpaceError("no space")

    monkeypatch.setattr("pipeline.store.unit.NewFile.commit", full)
    with pytest.raises(NoSpaceError):
        made(order(0, 5), order(1, 6), order(2, 7))
    assert made.store.finished_units() == set()


def test_halving_finds_exactly_the_samples_that_fail_alone():
    for bad in (set(), {0}, {6}, {2, 3}, {0, 1, 2, 3, 4, 5, 6}):
        samples = order(0, *(POISON if at in bad else 5 for at in range(7))).samples
        parts, culprits = sort_out(samples, lambda some: poisoned([sample.input_ids for sample in some]))
        assert [sample.line - 1 for sample, _ in culprits] == sorted(bad)
        assert sum(parts) == 7 - len(bad)
