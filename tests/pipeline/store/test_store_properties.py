"""Whatever the units, the rejections, the order and what interruptions left behind: the store is the straight run's."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.store.committer import Committer
from pipeline.store.content import row_norms
from pipeline.store.records import Rejection
from pipeline.store.writer import Store
from tests.pipeline.store import fake

LEFTOVERS = (
    "a shard being written",
    "a record being written",
    "a shard without its record",
    "a cut-off shard",
    "a record without its shard",
    "a flipped bit in its record",
    "both files being written beside it",
)


@dataclass(frozen=True)
class Plan:
    """Units, each with numbers of samples: good ones, and ones whose states are not finite."""

    units: tuple[tuple[tuple[int, bool], ...], ...]
    rejected: tuple[Rejection, ...]

    @property
    def samples(self) -> int:
        return sum(len(unit) for unit in self.units) + len(self.rejected)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Samples 0, 1, 2, ... cut into units, some of them non-finite; and some that are in no unit."""
    sizes = draw(st.lists(st.integers(1, 4), max_size=6))
    finite = iter(draw(st.lists(st.booleans(), min_size=sum(sizes), max_size=sum(sizes))))
    numbers = iter(range(sum(sizes)))
    units = tuple(tuple((next(numbers), next(finite)) for _ in range(size)) for size in sizes)
    rejected = draw(st.integers(0, 3))
    return Plan(units, tuple(Rejection(f"no-{at}", "too long", 1000 + at) for at in range(rejected)))


@dataclass(frozen=True)
class Interruption:
    """A run that did some units in some order, and what is found of others afterwards."""

    order: Sequence[int]
    left: Sequence[tuple[int, str]]


@st.composite
def interrupted(draw: st.DrawFn) -> tuple[Plan, list[Interruption], Sequence[int]]:
    """A plan, runs that were interrupted, and the order in which the last one does what is missing."""
    plan = draw(plans())
    units = list(range(len(plan.units)))
    runs = st.builds(
        Interruption,
        st.lists(st.sampled_from(units), unique=True) if units else st.just([]),
        st.lists(st.tuples(st.sampled_from(units), st.sampled_from(LEFTOVERS)), max_size=3) if units else st.just([]),
    )
    return plan, draw(st.lists(runs, max_size=2)), draw(st.permutations(units))


def do(store: Store, plan: Plan, units: Iterable[int]) -> None:
    """Through the committer, as an engine's worker does; a non-finite sample has one NaN."""
    with Committer(store.spec) as committer:
        for unit in units:
            order, states, _ = fake.order(unit, [number for number, _ in plan.units[unit]])
            row = 0
            for sample, (number, finite) in zip(order.samples, plan.units[unit], strict=True):
                if not finite:
                    states[row, number % 4, 0] = float("nan")
                row += len(sample.input_ids)
            committer.submit(order, states, row_norms(states), lambda: None)
        assert committer.committed(wait=True).failure is None


def straight(folder: Path, plan: Plan) -> dict[str, Any]:
    """The same store by one run, in order, one unit after the other and without a committer."""
    with Store.open_for_run(folder, fake.identity()) as store:
        for unit, samples in enumerate(plan.units):
            good = [fake.captured(number) for number, finite in samples if finite]
            reason = "non-finite states at layer {}"
            bad = [
                Rejection(f"sample-{number}", reason.format(fake.LAYERS[number % 4]), number + 1)
                for number, finite in samples
                if not finite
            ]
            store.write_unit(unit, good, bad)
        return store.finalise(plan.rejected, plan.samples)


def leave(shards: Path, unit: int, what: str) -> None:
    """Put a unit of a closed store into a state that a kill or a rotten disk leaves."""
    shard, record = shards / f"{unit:06d}.safetensors", shards / f"{unit:06d}.json"
    if what in {"a shard being written", "both files being written beside it"}:
        (shards / f"{shard.name}.tmp").write_bytes(b"half")
    if what in {"a record being written", "both files being written beside it"}:
        (shards / f"{record.name}.tmp").write_bytes(b"{")
    if what == "a shard without its record":
        record.unlink(missing_ok=True)
    if what == "a cut-off shard" and shard.exists():
        shard.write_bytes(shard.read_bytes()[:-1])
    if what == "a record without its shard":
        shard.unlink(missing_ok=True)
    if what == "a flipped bit in its record" and record.exists():
        content = bytearray(record.read_bytes())
        content[len(content) // 2] ^= 16
        record.write_bytes(content)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(interrupted())
def test_any_history_of_interruptions_gives_the_store_of_a_straight_run(
    history: tuple[Plan, list[Interruption], Sequence[int]],
) -> None:
    plan, interruptions, last_order = history
    with tempfile.TemporaryDirectory() as name:
        folder, other = Path(name) / "store", Path(name) / "straight"
        for interruption in interruptions:
            with Store.open_for_run(folder, fake.identity()) as store:
                finished = store.finished_units()
                do(store, plan, (unit for unit in interruption.order if unit not in finished))
            for unit, what in interruption.left:
                leave(folder / "shards", unit, what)
        with Store.open_for_run(folder, fake.identity()) as store:
            finished = store.finished_units()
            do(store, plan, (unit for unit in last_order if unit not in finished))
            manifest = store.finalise(plan.rejected, plan.samples)
        assert manifest == straight(other, plan)
        assert fake.contents(folder) == fake.contents(other)

    good = sum(finite for unit in plan.units for _, finite in unit)
    counts = manifest["counts"]
    assert (counts["captured"], counts["rejected"]) == (good, plan.samples - good)
