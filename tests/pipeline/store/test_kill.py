"""SIGKILL at any moment loses nothing that was finished, and leaves nothing that is not."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from pipeline.store.manifest import is_complete, read_manifest
from pipeline.store.sidecar import finished_units
from pipeline.store.writer import Store
from tests.pipeline.store.fake import captured, identity

UNITS = 60
KILLS = 20


def run(folder: Path, report: Path | None = None) -> None:
    """Complete the store, as extract does: units in plan order, skipping what is there."""
    with Store.open_for_run(folder, identity()) as store:
        done = store.finished_units()
        for unit in range(UNITS):
            if unit in done:
                continue
            store.write_unit(unit, [captured(3 * unit + i) for i in range(3)])
            if report:
                with report.open("a") as stream:
                    stream.write(f"{unit}\n")
        store.finalise([], 3 * UNITS)


def test_killed_at_random_moments_and_resumed_the_store_is_the_same(tmp_path: Path) -> None:
    rng = random.Random(1)  # noqa: S311
    run(tmp_path / "whole")
    expected = read_manifest(tmp_path / "whole")["store_digest"]
    killed, report, folder = 0, tmp_path / "report", tmp_path / "killed"
    report.touch()
    command = [sys.executable, "-c", "import sys; from tests.pipeline.store.test_kill import main; main(sys.argv)"]
    with subprocess.Popen(
        [*command, str(folder), str(report)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        while not is_complete(folder):
            delay = rng.uniform(0.0, 0.02) if killed < KILLS else 60.0
            print(delay, file=server.stdin, flush=True)
            killed += server.stdout.readline() == "killed\n"
            reported = {int(line) for line in report.read_text().splitlines()}
            assert reported <= finished_units(folder), "a unit reported as written is gone"
        server.stdin.close()
    assert killed >= KILLS
    assert read_manifest(folder)["store_digest"] == expected
    names = {file.name: file.read_bytes() for file in (folder / "shards").iterdir()}
    assert names == {file.name: file.read_bytes() for file in (tmp_path / "whole/shards").iterdir()}


def main(argv: list[str]) -> None:
    """Forks a run per line of standard input and kills it after so many seconds: importing torch once, not 20 times."""
    import os
    import signal

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(Path(argv[1]), Path(argv[2]))
            os._exit(0)
        deadline = time.monotonic() + float(line)
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.0005)
        if ended == (0, 0):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        print("killed" if ended == (0, 0) else "ended", flush=True)
