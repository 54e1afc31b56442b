"""What plans and stores cost as samples grow: seconds and peak memory, each measured in a process of its own.

    ./eyas bench.scale
    ./eyas bench.scale --samples 10000 --samples 1000000

What is linear has the same microseconds a sample whatever their number. Samples have 32 tokens, and states the hidden
size 8 and 4 layers: what counts here is how many samples, records and files there are. The store is a real one, written
unit by unit, but without waiting for the disk (fsync), whose own changes of speed would hide what is looked for.
A million samples take 3.5 GB of the folder for temporary files (TMPDIR says where), and some minutes for that store.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Not torch: a new process starts with the peak memory of the one that made it.
from pipeline.extract.plan import Plan, build_plan, read_unit
from pipeline.store.manifest import store_identity
from pipeline.store.records import CapturedSample
from pipeline.store.writer import Store

TOKENS = 32
VOCAB, LAYERS, HIDDEN = 49_152, (1, 14, 26, 29), 8
GOOD, BAD, STORE = "tokenized.jsonl", "bad.jsonl", "store"
BYTES_A_SAMPLE = 3500
"""of both data files, a shard and its sidecar, rounded up to blocks"""

Action = Callable[[], Any]
Figures = dict[str, float]
"""`seconds` on the clock, `cpu` seconds of all threads, and the process's peak memory in MiB, `before` the action and
when it is done: `peak`"""


def main(argv: list[str]) -> int:
    """Measure and print the table."""
    flags = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__.split("\n")[0])
    numbers = [10**4, 10**5, 10**6]
    flags.add_argument(
        "--samples", type=int, action="append", help=f"how many; may be given again (default: {numbers})"
    )
    flags.add_argument("--measure", nargs=2, metavar=("WHAT", "FOLDER"), help=argparse.SUPPRESS)
    given = flags.parse_args(argv)
    if given.measure:
        what, folder = given.measure
        print(json.dumps(measured(MEASURES[what](Path(folder)))))
        return 0
    given.samples = given.samples or numbers
    if min(given.samples) < 1:
        flags.error(f"--samples must be at least 1, not {min(given.samples)}")
    needed, there = BYTES_A_SAMPLE * max(given.samples), tempfile.gettempdir()
    if shutil.disk_usage(there).free < needed:
        flags.error(f"{there} has less than {needed / 1e9:.1f} GB free: set TMPDIR, or ask for fewer --samples")
    show({samples: measure_all(samples) for samples in given.samples})
    return 0


def measure_all(samples: int) -> dict[str, Figures]:
    """Every measure on data of so many samples, in the order in which a store comes into being."""
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder:
        write_data(Path(folder), samples)
        return {what: in_child(what, folder) for what in MEASURES}


def in_child(what: str, folder: str) -> Figures:
    """A measure in a new process; what it prints is shown only if it fails."""
    command = [sys.executable, "-m", "bench.scale", "--measure", what, folder]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    if child.returncode:
        sys.exit(f"measuring {what!r} failed:\n{child.stderr[-4000:]}")
    figures: Figures = json.loads(child.stdout)
    return figures


def measured(action: Action) -> Figures:
    """Run an action in this process."""
    before, started, cpu = peak_memory(), time.perf_counter(), time.process_time()
    action()
    return {
        "seconds": time.perf_counter() - started,
        "cpu": time.process_time() - cpu,
        "before": before,
        "peak": peak_memory(),
    }


def peak_memory() -> float:
    """The most resident memory this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_data(folder: Path, samples: int) -> None:
    """Sound samples, and as many whose loss mask is too short; their tokens recur, which costs the same."""
    rng = random.Random(0)  # noqa: S311 - not for secrets
    tokens = [[rng.randrange(VOCAB) for _ in range(TOKENS)] for _ in range(100)]
    mask = [0] * (TOKENS // 2) + [1] * (TOKENS // 2)
    for name, its_mask in ((GOOD, mask), (BAD, mask[1:])):
        rests = [json.dumps({"input_ids": row, "loss_mask": its_mask})[1:] for row in tokens]
        with (folder / name).open("w") as file:
            file.writelines(f'{{"id": "conversations-{i:06d}", {rests[i % 100]}\n' for i in range(samples))


def plan_of(file: Path) -> Plan:
    """The plan with extract's default limits."""
    return build_plan(file, batch_size=32, token_budget=8192, max_seq_len=2048, over_long="reject", vocab_size=VOCAB)


def open_store(folder: Path, plan: Plan) -> Store:
    """The store of a plan, made or taken up."""
    identity = store_identity(
        engine="none",
        dtype="bfloat16",
        storage="bf16",
        hidden_size=HIDDEN,
        num_layers=LAYERS[-1] + 1,
        vocab_size=VOCAB,
        output_layer_ids=LAYERS,
        digests={"data": plan.data_sha256, "model": "", "stack": "", "plan": plan.digest},
        settings={},
    )
    return Store.open_for_run(folder / STORE, identity)


def planning(folder: Path) -> Action:
    """The plan of sound samples."""
    return lambda: plan_of(folder / GOOD)


def rejecting(folder: Path) -> Action:
    """The plan of a file in which no sample is sound."""
    return lambda: plan_of(folder / BAD)


def committing(folder: Path) -> Action:
    """All units into a new store, with states that no engine had to compute."""
    import torch

    os.fsync = lambda fd: None
    plan = plan_of(folder / GOOD)
    states = torch.randn(TOKENS, len(LAYERS), HIDDEN).bfloat16()

    def commit() -> None:
        with open_store(folder, plan) as store:
            for unit in plan.units:
                samples = read_unit(folder / GOOD, unit)
                captured = [CapturedSample(s.id, s.input_ids, s.loss_mask, states) for s in samples]
                store.write_unit(unit.index, captured)

    return commit


def resuming(folder: Path) -> Action:
    """All that a run does, the plan included, before it finds that no unit is left to do."""

    def resume() -> None:
        plan = plan_of(folder / GOOD)
        with open_store(folder, plan) as store:
            assert store.finished_units() == {unit.index for unit in plan.units}

    return resume


def finalising(folder: Path) -> Action:
    """Account, digests and manifest of a store whose units are all there."""
    plan = plan_of(folder / GOOD)
    store = open_store(folder, plan)
    return lambda: store.finalise(plan.rejected, plan.input_samples)


def reading(folder: Path) -> Action:
    """The finished store opened, until a sample can be asked for."""
    from pipeline.store.reader import StoreReader  # imports torch

    return lambda: StoreReader(folder / STORE)


# What each returns is measured; what it needs for that is not.
MEASURES: dict[str, Callable[[Path], Action]] = {
    "plan": planning,
    "plan, all bad": rejecting,
    "commit": committing,
    "resume": resuming,
    "finalise": finalising,
    "open to read": reading,
}


def show(figures: dict[int, dict[str, Figures]]) -> None:
    """The table."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    table.add_column("", no_wrap=True)
    for column in ("samples", "seconds", "µs each", "CPU s", "peak MiB", "before"):
        table.add_column(column, justify="right", no_wrap=True)
    for what in MEASURES:
        for samples, of in figures.items():
            seconds, cpu, peak, before = (of[what][name] for name in ("seconds", "cpu", "peak", "before"))
            times = f"{seconds:.2f}", f"{seconds / samples * 1e6:.1f}", f"{cpu:.2f}"
            table.add_row(what, f"{samples:,}", *times, f"{peak:,.0f}", f"{before:,.0f}")
        table.add_section()
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
