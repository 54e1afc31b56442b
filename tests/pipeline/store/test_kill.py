"""SIGKILL at any moment loses nothing that was finished, and leaves nothing that is not.

A moment is a line of the store's own code, in any of the committer's threads: the run is killed just before its n-th
executed line, n drawn at random, so that kills land between any two steps of the commit protocol on machines of any
speed. `bench.kill` does the same with moments of time, on the demo target.
"""

from __future__ import annotations

import itertools
import random
import shutil
import sys
import threading
from pathlib import Path

from pipeline.store.committer import Committer
from pipeline.store.manifest import is_complete, read_manifest
from pipeline.store.sidecar import finished_units
from pipeline.store.spec import identity_sha256
from pipeline.store.writer import Store
from tests.pipeline.store.fake import contents, identity, submit
from tests.pipeline.store.killing import killed

IDENTITY = identity_sha256(identity())
UNITS = 30
KILLS = 24
LINES = 2000
"""A unit runs through some hundreds of lines, opening a store through more and more."""
STARTS = ("open_for_run", "submit", "_write", "_sync", "commit")
"""Functions from whose first call on lines are counted; the committer's writer and syncer are threads of their own."""


def run(folder: Path, report: Path) -> None:
    """Complete the store, as extract does: units in plan order through the committer, skipping what is there."""
    with Store.open_for_run(folder, identity()) as store:
        done, buffers = store.finished_units(), threading.Semaphore(2)
        with Committer(store.spec) as committer:
            for unit in range(UNITS):
                if unit not in done:
                    buffers.acquire()
                    submit(committer, unit, buffers.release)
                    tell(committer, report)
            tell(committer, report, wait=True)
        store.finalise([], 3 * UNITS)


def tell(committer: Committer, report: Path, *, wait: bool = False) -> None:
    """Note in a file what was committed, as a run tells its user."""
    committed = committer.committed(wait=wait)
    assert committed.failure is None
    with report.open("a") as stream:
        stream.writelines(f"{done.unit}\n" for done in committed.reports)


def test_killed_at_random_moments_and_resumed_the_store_is_the_same(tmp_path: Path) -> None:
    rng = random.Random(1)  # noqa: S311
    run(tmp_path / "whole", tmp_path / "whole.txt")
    folder, report = tmp_path / "killed", tmp_path / "killed.txt"
    report.touch()
    stages, starts = [], itertools.cycle(STARTS)
    while not is_complete(folder):
        line = rng.randrange(1, LINES) if len(stages) < KILLS else sys.maxsize
        if killed(lambda: run(folder, report), line, next(starts)):
            stages.append(len(finished_units(folder, IDENTITY)))
        reported = {int(unit) for unit in report.read_text().splitlines()}
        assert reported <= finished_units(folder, IDENTITY), "a unit that was reported as written is gone"
    assert len(stages) == KILLS
    assert len(set(stages)) > KILLS / 4, f"the kills were not spread over the run: {stages}"
    assert read_manifest(folder)["store_digest"] == read_manifest(tmp_path / "whole")["store_digest"]
    assert contents(folder) == contents(tmp_path / "whole")


def test_killed_while_it_is_finalised_a_store_is_finalised_by_the_next_run(tmp_path: Path) -> None:
    whole, folder, report = tmp_path / "whole", tmp_path / "killed", tmp_path / "told.txt"
    run(whole, report)
    shutil.copytree(whole, folder)
    with Store.open_for_run(folder, identity()) as store:
        units = store.finished_units()
    last = next(line for line in itertools.count(100, 100) if not killed(lambda: run(folder, report), line, "finalise"))
    for line in range(last, 0, -last // 12):
        (folder / "manifest.json").unlink()
        (folder / "rejected.jsonl").unlink()
        killed(lambda: run(folder, report), line, "finalise")
        assert finished_units(folder, IDENTITY) == units
        run(folder, report)
        assert contents(folder) == contents(whole)
