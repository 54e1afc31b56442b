"""The same as `bench.kill` with the whole stage and vLLM: each run is killed at a random moment and taken up again.

    ./eyas bench.kill-engine

A run is `python -m pipeline extract` on the first samples of the data. It gets SIGKILL at a moment drawn uniformly
between the engine's start and the end; every other time the stage's process alone, so that its worker lives on for a
moment with the store in its hands, and every other time all processes at once. The same command then completes the
store, at once.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.kill import contents
from pipeline.store.manifest import read_manifest

SAMPLES, BATCH_SIZE = 24, 3
"""8 units: enough for kills to fall into different ones, few enough for a run of half a minute"""


def main(argv: list[str]) -> int:
    """Kill, resume and compare; 1 if a store differs."""
    flags = argparse.ArgumentParser(prog="python -m bench.kill_engine", description=__doc__.split("\n")[0])
    flags.add_argument("--model-path", type=Path, required=True)
    flags.add_argument("--prepared-data", type=Path, required=True)
    flags.add_argument("--kills", type=int, default=10, help="runs to kill (default: %(default)s)")
    given = flags.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as name:
        folder = Path(name)
        data = folder / "tokenized.jsonl"
        with given.prepared_data.open() as source:
            data.write_text("".join(itertools.islice(source, SAMPLES)))
        command = [sys.executable, "-m", "pipeline", "extract", f"--model-path={given.model_path}"]
        command += [f"--prepared-data={data}", f"--batch-size={BATCH_SIZE}"]
        return kill_and_compare(lambda store: started([*command, f"--output-dir={store}"]), folder, given.kills)


def started(command: list[str]) -> subprocess.Popen[bytes]:
    """A run, the leader of a process group of its own."""
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def kill_and_compare(run: Callable[[Path], subprocess.Popen[bytes]], folder: Path, kills: int) -> int:
    """So many kills, and what was found after each."""
    whole = folder / "whole"
    duration = completed(run(whole), whole)
    wanted = store_files(whole)
    rng = random.Random(0)  # noqa: S311 - not for secrets
    for number in range(1, kills + 1):
        killed = folder / f"killed-{number}"
        process = run(killed)
        wait_for_engine(killed, process)
        moment = rng.uniform(0, duration)
        time.sleep(moment)
        everything = number % 2 == 0
        was_running = process.poll() is None
        if was_running:
            (os.killpg if everything else os.kill)(process.pid, signal.SIGKILL)
        process.communicate()
        done = len(list((killed / "shards").glob("*.json")))
        completed(run(killed), killed)
        found = store_files(killed)
        which = "all processes" if everything else "the stage's process"
        ended = f"{which} killed {moment:.1f} s after the start" if was_running else "ended before its moment"
        print(f"{number:2}: {ended}, {done} of {len(wanted) // 2 - 1} units finished, resumed", flush=True)
        if differing := {name for name, _ in wanted.items() ^ found.items()}:
            print(f"these files differ: {sorted(differing)}", file=sys.stderr)
            return 1
    print(f"all files equal to the uninterrupted run's, store digest {read_manifest(whole)['store_digest']}")
    return 0


def store_files(folder: Path) -> dict[str, bytes]:
    """All files of a store but its locks and logs."""
    return {name: content for name, content in contents(folder).items() if not name.startswith("logs/")}


def wait_for_engine(store: Path, process: subprocess.Popen[bytes]) -> None:
    """Return when the engine has loaded the target."""
    events = store / "logs" / "events.jsonl"
    while not (events.exists() and '"engine ready"' in events.read_text()):
        if process.poll() is not None:
            sys.exit(f"a run failed by itself:\n{process.communicate()[1].decode()}")
        time.sleep(0.05)


def completed(process: subprocess.Popen[bytes], store: Path) -> float:
    """Seconds from the engine's start to the run's end, which must be a good one."""
    wait_for_engine(store, process)
    began = time.perf_counter()
    _, errors = process.communicate()
    if process.returncode:
        sys.exit(f"a run failed by itself:\n{errors.decode()}")
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
