"""SIGKILL at any moment loses nothing that was finished, and leaves nothing that is not.

A moment is a line of the store's own code: the run is killed just before its n-th executed line, n drawn at random,
so that kills land between any two steps of the commit protocol on machines of any speed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import pipeline.store.shard  # noqa: F401 - imported before the forks, once
from pipeline.store.manifest import is_complete, read_manifest
from pipeline.store.sidecar import finished_units
from pipeline.store.spec import identity_sha256
from pipeline.store.writer import Store
from tests.pipeline.store.fake import captured, contents, identity

IDENTITY = identity_sha256(identity())
UNITS = 30
KILLS = 20
LINES = 1200
"""A unit runs through some hundreds of lines, opening a store through more and more."""


def run(folder: Path, report: Path) -> None:
    """Complete the store, as extract does: units in plan order, skipping what is there."""
    with Store.open_for_run(folder, identity()) as store:
        done = store.finished_units()
        for unit in range(UNITS):
            if unit not in done:
                store.write_unit(unit, [captured(3 * unit + i) for i in range(3)])
                with report.open("a") as stream:
                    stream.write(f"{unit}\n")
        store.finalise([], 3 * UNITS)


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
    """SIGKILL this process at the n-th line that its main thread executes in the store's code after `start` began."""
    left, started = line, False

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left, started
        if "/pipeline/store/" not in frame.f_code.co_filename or "tests" in frame.f_code.co_filename:
            return None
        started = started or frame.f_code.co_name == start
        left -= started and event == "line"
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def test_killed_at_random_moments_and_resumed_the_store_is_the_same(tmp_path: Path) -> None:
    rng = random.Random(1)  # noqa: S311
    run(tmp_path / "whole", tmp_path / "whole.txt")
    folder, report = tmp_path / "killed", tmp_path / "killed.txt"
    report.touch()
    stages = []
    while not is_complete(folder):
        line = rng.randrange(1, LINES) if len(stages) < KILLS else sys.maxsize
        if run_and_die(folder, report, line, rng.choice(["open_for_run", "write_unit", "write_unit"])):
            stages.append(len(finished_units(folder, IDENTITY)))
        reported = {int(unit) for unit in report.read_text().splitlines()}
        assert reported <= finished_units(folder, IDENTITY), "a unit that was reported as written is gone"
    assert len(stages) == KILLS
    assert len(set(stages)) > KILLS / 4, f"the kills were not spread over the run: {stages}"
    assert read_manifest(folder)["store_digest"] == read_manifest(tmp_path / "whole")["store_digest"]
    assert contents(folder) == contents(tmp_path / "whole")
