"""A tiny target, its data, and a run of the stage on them in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests import tiny_targets
from tests.engines import CPU_ENVIRONMENT, random_samples

CHECKOUT = Path(__file__).resolve().parents[3]
LENGTHS = [40, 1, 300, 17, 120, 64, 250, 9, 33, 180, 5, 77]


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_targets.llama(tmp_path_factory.mktemp("targets") / "llama")


@pytest.fixture(scope="session")
def stack_json(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What says which stack this is: the environment's own where the tests run in one."""
    own = Path(sys.prefix) / "stack.json"
    if own.exists():
        return own
    file = tmp_path_factory.mktemp("stack") / "stack.json"
    file.write_text(json.dumps({"name": "extract", "accelerator": "cpu", "digest": "0" * 64, "patches": []}))
    return file


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    return write_samples(tmp_path / "tokenized.jsonl", random_samples(LENGTHS))


def write_samples(file: Path, samples: Sequence[list[int]]) -> Path:
    """Tokenized samples `s0`, `s1`, ..., every second token trained."""
    with file.open("w") as stream:
        for number, ids in enumerate(samples):
            mask = [position % 2 for position in range(len(ids))]
            stream.write(json.dumps({"id": f"s{number}", "input_ids": ids, "loss_mask": mask}) + "\n")
    return file


@pytest.fixture(scope="session")
def start_stage(stack_json: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts `python -m pipeline STAGE` as the leader of a process group, as a terminal does."""

    def start(stage: str, *flags: object, **variables: str) -> subprocess.Popen[str]:
        environment = os.environ | CPU_ENVIRONMENT | {"EYAS_STACK_JSON": str(stack_json)} | variables
        if "--tp-size" in flags:
            del environment["VLLM_CPU_OMP_THREADS_BIND"]
        return subprocess.Popen(
            [sys.executable, "-m", "pipeline", stage, *map(str, flags)],
            cwd=CHECKOUT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


@pytest.fixture(scope="session")
def stage(start_stage) -> Callable[..., tuple[int, str, str]]:
    """Runs a stage to its end: exit code, standard output, standard error."""

    def run(name: str, *flags: object, **variables: str) -> tuple[int, str, str]:
        process = start_stage(name, *flags, **variables)
        output, errors = process.communicate(timeout=600)
        return process.returncode, output, errors

    return run


def manifest_of(store: Path) -> dict:
    return json.loads((store / "manifest.json").read_text())
