"""Runs on the demo target, each killed at a random moment and taken up again: does the same store come of it?

    ./eyas bench.kill

The states are those of the reference engine, computed once a unit; each run replays them bit for bit through the
store, the committer and two buffers, as an engine's worker does, so that a run takes tenths of a second and 200 of
them minutes. A run is a process of its own. It gets SIGKILL at a moment drawn uniformly over the time that an
uninterrupted run takes; a second process completes its store, which must equal the uninterrupted run's in every file.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import track

from pipeline.extract.engines.protocol import start_engine
from pipeline.extract.job import Job, settle
from pipeline.extract.plan import read_unit
from pipeline.extract.settings import ExtractSettings
from pipeline.store.committer import Committer
from pipeline.store.content import row_norms
from pipeline.store.manifest import read_manifest
from pipeline.store.reader import StoreReader
from pipeline.store.records import OrderedSample, UnitOrder
from pipeline.store.sidecar import finished_units
from pipeline.store.spec import identity_sha256
from pipeline.store.writer import Store

BATCH_SIZE = 4
"""Samples in a unit: more units than with the default, so that kills fall into more of them."""


def main(argv: list[str]) -> int:
    """Kill, resume and compare; 1 if a store differs."""
    flags = argparse.ArgumentParser(prog="python -m bench.kill", description=__doc__.split("\n")[0])
    flags.add_argument("--model-path", type=Path, required=True)
    flags.add_argument("--prepared-data", type=Path, required=True)
    flags.add_argument("--kills", type=int, default=200, help="runs to kill (default: %(default)s)")
    given = flags.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as name:
        folder = Path(name)
        settings = ExtractSettings(
            model_path=given.model_path,
            prepared_data=given.prepared_data,
            output_dir=folder / "store",
            batch_size=BATCH_SIZE,
            engine="reference",
        )
        job = settle(settings)
        run = Replay(job, job.identity(), states_of(job, folder / "states.pt"))
        return kill_and_compare(run, folder, given.kills)


def states_of(job: Job, file: Path) -> list[torch.Tensor]:
    """Each unit's states `[rows, layers, hidden]` as the reference engine computes them.

    In a child: a process that has computed on several threads must not fork.
    """
    child = multiprocessing.get_context("fork").Process(target=compute, args=(job, file))
    child.start()
    child.join()
    if child.exitcode:
        sys.exit("computing the states failed")
    states: list[torch.Tensor] = torch.load(file)
    return states


def compute(job: Job, file: Path) -> None:
    """Run the engine over the plan and save what it gives."""
    engine = start_engine("reference", job.engine_options())
    units = track(job.plan.units, "computing states", transient=True)
    torch.save(
        [torch.cat(engine.extract([s.input_ids for s in read_unit(job.settings.prepared_data, u)])) for u in units],
        file,
    )


@dataclass(frozen=True)
class Replay:
    """A run whose engine only remembers."""

    job: Job
    identity: dict[str, Any]
    states: list[torch.Tensor]

    def __call__(self, folder: Path, told: int) -> None:
        """Complete the store in a folder; each unit that is said to be on the disk is told as a line to a file."""
        torch.set_num_threads(1)
        with Store.open_for_run(folder, self.identity) as store:
            finished, buffers = store.finished_units(), threading.Semaphore(2)
            with Committer(store.spec) as committer:
                for unit in (unit for unit in self.job.plan.units if unit.index not in finished):
                    buffers.acquire()
                    states = self.states[unit.index].clone()
                    committer.submit(self._order(unit), states, row_norms(states), buffers.release)
                    tell(committer, told)
                tell(committer, told, wait=True)
            store.finalise(self.job.plan.rejected, self.job.plan.input_samples)

    def _order(self, unit: Any) -> UnitOrder:
        samples = read_unit(self.job.settings.prepared_data, unit)
        ordered = (
            OrderedSample(sample.id, ref.line, sample.input_ids, sample.loss_mask)
            for ref, sample in zip(unit.samples, samples, strict=True)
        )
        return UnitOrder(unit.index, tuple(ordered))


def tell(committer: Committer, told: int, *, wait: bool = False) -> None:
    """Pass on what was committed."""
    committed = committer.committed(wait=wait)
    if committed.failure:
        raise committed.failure
    for report in committed.reports:
        os.write(told, f"{report.unit}\n".encode())


def in_child(run: Callable[[Path, int], None], folder: Path, kill_after: float | None = None) -> tuple[bool, set[int]]:
    """A run in a process of its own: whether it was killed, and the units that it had told of."""
    with tempfile.TemporaryFile() as told:
        child = os.fork()
        if child == 0:
            try:
                run(folder, told.fileno())
                os._exit(0)
            except BaseException:  # noqa: BLE001 - a child must not go on as a second parent
                traceback.print_exc()
                os._exit(1)
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
            sys.exit("a run failed by itself")
        told.seek(0)
        return os.WIFSIGNALED(status), {int(line) for line in told.read().splitlines()}


def kill_and_compare(run: Replay, folder: Path, kills: int) -> int:
    """So many kills, and what was found after each."""
    whole, killed = folder / "whole", folder / "killed"
    duration = statistics.median(timed(run, whole) for _ in range(3))
    wanted = contents(whole)
    planned = sorted(sample.id for unit in run.job.plan.units for sample in unit.samples)
    assert sorted(StoreReader(whole).ids()) == planned, "the uninterrupted run itself lost samples"
    rng, found, late = random.Random(0), list[tuple[int, str]](), 0  # noqa: S311 - not for secrets
    for _ in track(range(kills), f"{kills} runs", transient=True):
        shutil.rmtree(killed, ignore_errors=True)
        while not (fate := in_child(run, killed, rng.uniform(0, duration)))[0]:
            late += 1  # it was faster than usual
            shutil.rmtree(killed)
        done = finished_units(killed, identity_sha256(run.identity))
        if lost := fate[1] - done:
            print(f"units that were told as committed are gone after the kill: {sorted(lost)}", file=sys.stderr)
            return 1
        found.append((len(done), leftover(killed, done)))
        in_child(run, killed)
        if differing := {name for name, _ in wanted.items() ^ contents(killed).items()}:
            print(f"after kill {len(found)}, resumed, these files differ: {sorted(differing)}", file=sys.stderr)
            return 1
    show(run, duration, found, late, read_manifest(whole)["store_digest"])
    return 0


def timed(run: Replay, folder: Path) -> float:
    """Seconds that a whole run takes."""
    shutil.rmtree(folder, ignore_errors=True)
    started = time.perf_counter()
    in_child(run, folder)
    return time.perf_counter() - started


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a store but its locks."""
    files = (file for file in folder.rglob("*") if file.is_file() and not file.name.endswith("lock"))
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def leftover(folder: Path, done: set[int]) -> str:
    """What a kill left that is no finished unit's."""
    names = {file.name for file in folder.rglob("*") if file.is_file()}
    shards = {int(name.split(".")[0]) for name in names if name.endswith(".safetensors")}
    kinds = [
        *(["a shard being written"] if any(name.endswith(".safetensors.tmp") for name in names) else []),
        *(["a shard without its record"] if shards - done else []),
        *(["a record or manifest being written"] if any(name.endswith(".json.tmp") for name in names) else []),
        *(["no manifest yet"] if "manifest.json" not in names else []),
    ]
    return " and ".join(kinds) or "whole units only"


def show(run: Replay, duration: float, found: list[tuple[int, str]], late: int, digest: str) -> None:
    """What was measured."""
    units = len(run.job.plan.units)
    print(
        f"{len(found)} runs of {units} units and {duration:.2f} s killed ({late} more ended before their moment), each "
        f"resumed to the end: all files equal to the uninterrupted run's, store digest {digest}; no file left over"
    )
    quarters = Counter(min(3, 4 * done // units) for done, _ in found)
    spread = ", ".join(f"{quarters[quarter]}" for quarter in range(4))
    print(f"finished at the kill, by quarter of the units: {spread}; none {sum(done == 0 for done, _ in found)} times")
    for kind, times in Counter(kind for _, kind in found).most_common():
        print(f"{times:4} x found {kind}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
