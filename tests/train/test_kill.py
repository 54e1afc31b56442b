"""Training that is killed at any moment ends with the very weights it would have had."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.train.tiny_drafts import Sample, make_store, make_target

STEPS = 12


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kill")
    target = make_target(folder / "target")
    rng = np.random.default_rng(1)
    samples = [Sample(f"s{number}", rng.integers(2, 24, 16).tolist(), [0] * 4 + [1] * 12) for number in range(40)]
    make_store(folder / "store", target, folder / "target", samples)
    return folder


def start(work: Path, name: str, *more: str) -> subprocess.Popen[str]:
    flags = {
        "--store": work / "store",
        "--model-path": work / "target",
        "--output-dir": work / name,
        "--draft-vocab-size": 12,
        "--epochs": 2,
        "--batch-tokens": 96,
        "--max-steps": STEPS,
        "--learning-rate": 1e-2,
        "--validation-share": 0.1,
        "--ttt-warmup-share": 0.5,
        "--checkpoint-steps": 1,
        "--dtype": "float32",
        "--state-noise": 0.5,
    }
    line = [sys.executable, "-m", "pipeline", "train", *(str(part) for pair in flags.items() for part in pair), *more]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(run: subprocess.Popen[str]) -> str:
    said, _ = run.communicate(timeout=300)
    assert run.returncode == 0, said
    return said


def wait_for_step(run: subprocess.Popen[str], folder: Path, step: int) -> None:
    deadline = time.monotonic() + 200
    while not any(int(found.name[5:]) >= step for found in (folder / "checkpoints").glob("step-*")):
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def events(folder: Path, name: str) -> list[dict[str, Any]]:
    lines = (folder / "logs" / "events.jsonl").read_text().splitlines()
    return [event for line in lines if (event := json.loads(line))["event"] == name]


def test_a_run_killed_twice_ends_with_the_bits_of_one_that_was_not(work: Path) -> None:
    finish(start(work, "whole"))
    for step in (2, 7):
        run = start(work, "killed")
        wait_for_step(run, work / "killed", step)
        run.kill()
        run.communicate()
    assert not (work / "killed" / "report.json").exists()
    finish(start(work, "killed"))
    last = Path("checkpoints", f"step-{STEPS:08d}")
    for name in ("model.safetensors", "training/optimizer.safetensors", "training/rng.safetensors"):
        assert (work / "killed" / last / name).read_bytes() == (work / "whole" / last / name).read_bytes()
    losses = {event["step"]: event["loss"] for event in events(work / "whole", "step")}
    assert sorted(losses) == list(range(1, STEPS + 1))
    # A step that was done again after a kill was the same step.
    assert all(event["loss"] == losses[event["step"]] for event in events(work / "killed", "step"))
    assert (work / "killed" / "best").resolve().name == (work / "whole" / "best").resolve().name


def test_the_same_command_again_does_nothing_and_other_settings_are_refused(work: Path) -> None:
    assert "up to date" in finish(start(work, "whole"))
    before = sorted((work / "whole" / "checkpoints").iterdir())
    refused = start(work, "whole", "--seed", "5")
    said, _ = refused.communicate(timeout=300)
    assert refused.returncode == 40
    assert "seed" in said
    assert "Traceback" not in said
    assert sorted((work / "whole" / "checkpoints").iterdir()) == before


def test_nothing_beside_a_drafts_weights_looks_like_weights(work: Path) -> None:
    folder = (work / "whole" / "best").resolve()
    assert [file.name for file in folder.glob("*.safetensors")] == ["model.safetensors"]
    assert (work / "whole" / "untrained").resolve().name == "step-00000000"
