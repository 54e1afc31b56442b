"""Two processes that share each step give the loss curve of one process that does the whole step.

Both compute in float32 with the same tokens in each optimizer step, so that only the order of sums differs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import pipeline.train.run
from pipeline.train import command
from pipeline.train.job import settle
from pipeline.train.settings import parse
from pipeline.train.trainer import DraftTrainer, Position
from tests.train.conftest import CHECKOUT, arguments, stage

SAME = 1e-5
"""Relative. float32 rounds to 6e-8 of a number; summed in another order, the losses here differ by up to 6e-7, and the
weights after 13 steps by up to 1e-6 of the way they went. With the mean of both processes' means instead of the mean
over all rows, 11 of the 13 losses differ by more than this."""
# `start` is the beginning of a name of torchrun's own flags, too, as `nproc` is.
FLAGS = {"dtype": "float32", "start": "random", "epochs": 2}
Runs = tuple[Path, Path]


@pytest.fixture(scope="module")
def runs(target: Path, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Training in one process, and in two."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    assert command.main(arguments(one, target=target, store=store, **FLAGS)) == 0
    done = stage(arguments(two, target=target, store=store, nproc=2, **FLAGS))
    assert done.returncode == 0, done.stderr
    return one, two


def test_two_processes_have_the_loss_curve_of_one(runs: Runs) -> None:
    one, two = (events(folder, "step") for folder in runs)
    assert [event["step"] for event in two] == list(range(1, len(one) + 1))
    assert [event["loss"] for event in two] == pytest.approx([event["loss"] for event in one], rel=SAME)
    # Equal losses of a draft that learns nothing would say little.
    assert one[-1]["loss"] < 0.8 * one[0]["loss"]


def test_among_their_steps_are_some_with_nothing_for_the_second_process(
    target: Path, store: Path, tmp_path: Path
) -> None:
    job = settle(parse(arguments(tmp_path, target=target, store=store, nproc=2, **FLAGS)))
    assert [] in list(job.batches(rank=1))


def test_two_processes_say_that_they_are_two(runs: Runs) -> None:
    assert [[event["processes"] for event in events(folder, "start")] for folder in runs] == [[1], [2]]


def test_two_processes_validate_every_held_out_sample_once(runs: Runs) -> None:
    one, two = (events(folder, "validation") for folder in runs)
    assert len(one) == FLAGS["epochs"]
    assert [found["proposed"] for found in two] == [found["proposed"] for found in one]
    assert [found["loss"] for found in two] == pytest.approx([found["loss"] for found in one], rel=SAME)


def test_two_processes_end_with_the_weights_of_one(runs: Runs) -> None:
    one, two = (load_file(last(folder) / "model.safetensors") for folder in runs)
    begun = load_file(runs[0] / "untrained" / "model.safetensors")
    assert one.keys() == two.keys()
    for name in (name for name, weight in one.items() if weight.is_floating_point()):
        moved = (one[name] - begun[name]).norm()
        assert (two[name] - one[name]).norm() <= SAME * moved, name


def test_two_processes_that_were_killed_go_on_with_their_own_noise(target: Path, store: Path, tmp_path: Path) -> None:
    flags = FLAGS | {"nproc": 2, "state_noise": 1.0, "max_steps": 6, "checkpoint_steps": 2}
    whole, killed = (arguments(tmp_path / name, target=target, store=store, **flags) for name in ("whole", "killed"))
    assert stage(whole).returncode == 0
    line = [sys.executable, "-m", "pipeline", "train", *killed]
    with subprocess.Popen(line, cwd=CHECKOUT, stderr=subprocess.DEVNULL, start_new_session=True) as run:
        deadline = time.monotonic() + 200
        while not (tmp_path / "killed" / "checkpoints" / "step-00000002").exists():
            assert run.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(run.pid, signal.SIGKILL)
    assert stage(killed).returncode == 0
    one, two = ((last(tmp_path / name) / "model.safetensors").read_bytes() for name in ("whole", "killed"))
    assert one == two


def drawn(*, step: int, rank: int, processes: int) -> float:
    """What a process draws at random in a step, whatever it has drawn before."""
    torch.rand(step + rank)
    trainer = SimpleNamespace(
        position=Position(step=step),
        config=SimpleNamespace(train_call_kwargs={}),
        is_distributed=processes > 1,
        rank=rank,
        _seed=7,
        _ttt_warmup=0,
        _ttt_steps=1,
    )
    DraftTrainer._begin_step(trainer)
    return float(torch.rand(1))


def test_each_of_several_processes_has_random_numbers_of_its_own_for_each_step() -> None:
    places = [(step, rank) for step in range(3) for rank in range(2)]
    found = [drawn(step=step, rank=rank, processes=2) for step, rank in places]
    assert len(set(found)) == len(places)
    assert found == [drawn(step=step, rank=rank, processes=2) for step, rank in places]


def test_one_process_goes_on_from_what_its_checkpoint_has() -> None:
    torch.manual_seed(3)
    assert drawn(step=5, rank=0, processes=1) != drawn(step=5, rank=0, processes=1)


@pytest.mark.parametrize(("rank", "writes"), [("0", True), ("1", False)])
def test_the_report_is_the_first_processs(
    target: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str, writes: bool
) -> None:
    job = settle(parse(arguments(tmp_path, target=target, store=store)))
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr(pipeline.train.run, "run", lambda _: {})
    command._run(job)
    assert (tmp_path / "report.json").exists() is writes


def events(folder: Path, name: str) -> list[dict[str, Any]]:
    """Those of one kind in a run's log."""
    lines = (folder / "logs" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def last(folder: Path) -> Path:
    """The newest checkpoint of a run."""
    return max((folder / "checkpoints").glob("step-*"))
