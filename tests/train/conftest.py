"""A tiny target, a store made from it, and training on them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pipeline.train.command import main
from tests.train import making

CHECKOUT = Path(__file__).resolve().parents[2]
SMALL = {"draft-vocab-size": 12, "batch-tokens": 64, "epochs": 2, "learning-rate": 0.01, "validation-share": 0.25}
"""flags of a run that takes a second"""


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """So that no sum is split otherwise on a machine with more cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return making.target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def store(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "store"
    return making.store(folder, target, making.conversations(target, 24))


@pytest.fixture
def train(target: Path, store: Path) -> Callable[..., Path]:
    """Trains into a folder, in this process; flags replace those of a small run."""

    def run(output: Path, **flags: object) -> Path:
        assert main(arguments(output, target=target, store=store, **flags)) == 0
        return output

    return run


def arguments(output: Path, *, target: Path, store: Path, **flags: object) -> list[str]:
    """The stage's flags; True is a flag without a value."""
    given = {"store": store, "model-path": target, "output-dir": output, **SMALL}
    given |= {name.replace("_", "-"): value for name, value in flags.items()}
    words = ([f"--{name}"] if value is True else [f"--{name}", str(value)] for name, value in given.items())
    return [word for pair in words for word in pair]


def stage(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """The stage as a user runs it, in a process of its own."""
    command = [sys.executable, "-m", "pipeline", "train", *arguments]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
