"""SIGKILL at any moment loses nothing that was finished, and leaves nothing that is not.

A moment is a line of the store's own code, in any of the committer's threads: the run is killed just before its n-th
executed line, n drawn at random, so that kills land between any two steps of the commit protocol on machines of any
speed. `bench.kill` does the same with moments of time, on the demo target.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from pipeline.store.committer import Committer
from pipeline.store.manifest import is_complete, read_manifest
from pipeline.store.sidecar import finished_units
from pipeline.store.spec import identity_sha256
from pipeline.store.writer import Store
from tests.pipeline.store.fake import contents, identity, submit

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


def run_and_die(folder: Path, report: Path, line: int, start: str) -> bool:
    """Run in a child that is killed at its n-th line after it first entered a function; returns whether it was."""
    child = os.fork()
    if child == 0:
        try:
            kill_at(line, start)
            run(folder, report)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a child must not go on as a second pytest
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the run failed by itself"
    return os.WIFSIGNALED(status)


def kill_at(line: int, start: str) -> None:
    """SIGKILL this process at the n-th line that its threads execute in the store's code after `start` began."""
    lines, started = itertools.count(1), threading.Event()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if "/pipeline/store/" not in frame.f_code.co_filename or "tests" in frame.f_code.co_filename:
            return None
        if frame.f_code.co_name == start:
            started.set()
        if event == "line" and started.is_set() and next(lines) == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)


def test_killed_at_random_moments_and_resumed_the_store_is_the_same(tmp_path: Path) -> None:
    rng = random.Random(1)  # noqa: S311
    run(tmp_path / "whole", tmp_path / "whole.txt")
    folder, report = tmp_path / "killed", tmp_path / "killed.txt"
    report.touch()
    stages, starts = [], itertools.cycle(STARTS)
    while not is_complete(folder):
        line = rng.randrange(1, LINES) if len(stages) < KILLS else sys.maxsize
        if run_and_die(folder, report, line, next(starts)):
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
    last = next(line for line in itertools.count(100, 100) if not run_and_die(folder, report, line, "finalise"))
    for line in range(last, 0, -last // 12):
        (folder / "manifest.json").unlink()
        (folder / "rejected.jsonl").unlink()
        run_and_die(folder, report, line, "finalise")
        assert finished_units(folder, IDENTITY) == units
        run(folder, report)
        assert contents(folder) == contents(whole)
