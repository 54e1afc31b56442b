"""Training killed at random moments and taken up again: does the very same draft come of it?

    ./eyas bench.train-kill

A run is a process of its own: a small draft, several epochs, a checkpoint after every second step. It gets SIGKILL at a
moment drawn uniformly over the time that an uninterrupted run takes, settling, validation and the writing of
checkpoints included; a second process goes on to the end. Then every file of every checkpoint that is kept (weights,
optimizer, random state, place in the data) must equal the uninterrupted run's, and so must the loss of every step that
either of the two processes did.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from bench.train_data import SMALL, make
from pipeline.train.command import main as train
from pipeline.train.kept import Kept

KEEP = 2
FLAGS = {
    "draft-vocab-size": 128,
    "batch-tokens": 256,
    "epochs": 3,
    "learning-rate": 0.01,
    "checkpoint-steps": 2,
    "ttt-warmup-share": 0.5,
    "state-noise": 0.5,
    "keep": KEEP,
}
BEFORE, WRITING, VALIDATING, STEP, AFTER = (
    *("before the first checkpoint", "while a checkpoint was written", "while validating", "in a step"),
    "after the last step",
)


def main(argv: list[str]) -> int:
    """Kill, go on and compare; 1 if anything differs."""
    flags = argparse.ArgumentParser(prog="python -m bench.train_kill", description=__doc__.split("\n")[0])
    flags.add_argument("--kills", type=int, default=20, help="runs to kill (default: %(default)s)")
    flags.add_argument("--seed", type=int, default=0, help="of the moments (default: %(default)s)")
    given = flags.parse_args(argv)
    importlib.import_module("pipeline.train.run")  # once, before runs are forked
    torch.set_num_threads(1)  # a process that has computed on several threads must not fork
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as name:
        folder = Path(name)
        target, store = make(folder, SMALL)
        values = {"store": store, "model-path": target, **FLAGS}
        return kill_and_compare([f"--{name}={value}" for name, value in values.items()], folder, given)


def kill_and_compare(arguments: list[str], folder: Path, given: argparse.Namespace) -> int:
    """So many kills, and what was found after each."""
    whole, killed = folder / "whole", folder / "killed"
    in_child(arguments, whole)
    wanted, losses = contents(whole), losses_of(whole)
    started = time.perf_counter()
    in_child(arguments, killed)
    duration = time.perf_counter() - started
    if differing := differences(wanted, contents(killed)):
        print("two uninterrupted runs differ:", *differing, sep="\n", file=sys.stderr)
        return 1
    steps, checkpoints = len(losses), len(events(whole, "checkpoint"))
    print(f"a run: {steps} steps, {checkpoints} checkpoints, {duration:.2f} s; moments drawn with seed {given.seed}")
    rng, found, late = random.Random(given.seed), Counter[str](), 0  # noqa: S311 - not for secrets
    for number in range(1, given.kills + 1):
        shutil.rmtree(killed, ignore_errors=True)
        while not in_child(arguments, killed, moment := rng.uniform(0, duration)):
            late += 1  # it was faster than usual
            shutil.rmtree(killed)
        kind, where = place(killed, whole)
        found[kind] += 1
        in_child(arguments, killed)
        differing = differences(wanted, contents(killed)) + other_losses(losses, killed)
        verdict = "the same bits" if not differing else "DIFFERENT"
        print(f"{number:3}: killed after {moment:5.2f} s, {where}; gone on to the end: {verdict}", flush=True)
        if differing:
            print("\n".join(differing), file=sys.stderr)
            return 1
    spread = ", ".join(f"{times} {kind}" for kind, times in found.most_common())
    print(
        f"{given.kills} runs killed ({late} more ended before their moment): {spread}; after each, all {len(wanted)} "
        f"files of checkpoints and the losses of all {steps} steps equal to the uninterrupted run's"
    )
    return 0


def in_child(arguments: list[str], folder: Path, kill_after: float | None = None) -> bool:
    """A run in a process of its own; whether it was killed."""
    said = folder.with_suffix(".txt")
    child = os.fork()
    if child == 0:
        with said.open("w") as output:
            for stream in (sys.stdout, sys.stderr):
                os.dup2(output.fileno(), stream.fileno())
        try:
            train([*arguments, f"--output-dir={folder}"])
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a child must not go on as a second parent
            traceback.print_exc()
            os._exit(1)
    deadline = time.perf_counter() + (math.inf if kill_after is None else kill_after)
    ended, status = 0, 0
    while not ended and (left := deadline - time.perf_counter()) > 0:
        time.sleep(min(left, 0.01))
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        sys.exit(f"a run failed by itself:\n{said.read_text()}")
    return os.WIFSIGNALED(status)


def contents(folder: Path) -> dict[str, bytes]:
    """All files of the checkpoints that a finished run keeps, and which of them is the best."""
    files = (file for file in (folder / "checkpoints").rglob("*") if file.is_file())
    found = {str(file.relative_to(folder)): file.read_bytes() for file in files}
    return found | {"best": os.fsencode((folder / "best").readlink())}


def differences(wanted: dict[str, bytes], found: dict[str, bytes]) -> list[str]:
    """Files that are not the same, and by how much numbers in them differ."""
    names = sorted({name for name, _ in wanted.items() ^ found.items()})
    return [f"{name}: {_by_how_much(wanted.get(name), found.get(name))}" for name in names]


def _by_how_much(one: bytes | None, two: bytes | None) -> str:
    if one is None or two is None:
        return "only after the kill" if one is None else "gone after the kill"
    if not one.startswith(b"{", 8):
        return "differs"
    with tempfile.TemporaryDirectory() as name:
        tensors = []
        for number, content in enumerate((one, two)):
            file = Path(name, str(number))
            file.write_bytes(content)
            tensors.append(load_file(file))
    gaps = {name: float((tensors[1][name].double() - value.double()).abs().max()) for name, value in tensors[0].items()}
    worst = max(gaps, key=lambda name: gaps[name])
    return f"largest difference {gaps[worst]:.3g}, in {worst}"


def losses_of(folder: Path) -> dict[int, float]:
    """The loss of each step."""
    return {event["step"]: event["loss"] for event in events(folder, "step")}


def other_losses(wanted: dict[int, float], folder: Path) -> list[str]:
    """Steps that had another loss in one of the processes, and steps that none did."""
    done = events(folder, "step")
    other = [f"step {event['step']}: loss {event['loss']}" for event in done if event["loss"] != wanted[event["step"]]]
    return other + [f"step {step} was not done" for step in sorted(set(wanted) - {event["step"] for event in done})]


def events(folder: Path, name: str | None = None) -> list[dict[str, Any]]:
    """What a run noted, of one kind or all."""
    file = folder / "logs" / "events.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [event for event in map(json.loads, lines) if name in {None, event["event"]}]


def place(killed: Path, whole: Path) -> tuple[str, str]:
    """Where a kill fell: its kind, and in words."""
    done, checkpoints = Kept(killed, KEEP).steps(), killed / "checkpoints"
    halves = [path.name for path in checkpoints.iterdir() if path.name.startswith(".")] if checkpoints.is_dir() else []
    noted = events(killed)
    step = max((event["step"] for event in noted if event["event"] == "step"), default=0)
    last = max(event["step"] for event in events(whole, "step"))
    if halves:
        (number,) = {int(re.findall(r"\d+", half)[0]) for half in halves}
        ended = "was removed" if halves[0].endswith(".gone") else "was written"
        return WRITING, f"while the checkpoint of step {number} {ended}"
    if not done:
        return BEFORE, BEFORE
    if done[-1] == last:
        return AFTER, AFTER
    validated = {event["step"] for event in events(whole, "validation")} - {
        event["step"] for event in noted if event["event"] == "validation"
    }
    if step in validated:
        return VALIDATING, f"while validating after step {step}"
    return STEP, f"in step {step + 1}, the last checkpoint after step {done[-1]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
