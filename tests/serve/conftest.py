"""The stage as a user runs it, on tiny targets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def stack_json(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What says which stack this is: the environment's own where the tests run in one."""
    own = Path(sys.prefix) / "stack.json"
    if own.exists():
        return own
    file = tmp_path_factory.mktemp("stack") / "stack.json"
    file.write_text(json.dumps({"name": "serve", "accelerator": "cpu", "digest": "0" * 64, "patches": []}))
    return file


@pytest.fixture(scope="session")
def evaluate(stack_json: Path) -> Run:
    """Runs the stage to its end: exit code, standard output, standard error."""
    # One thread: matrices this small only lose by being shared out. No compiler's warm-up, no compiled kernels.
    variables = {"EYAS_STACK_JSON": str(stack_json), "OMP_NUM_THREADS": "1"}

    def run(*flags: object) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "pipeline", "evaluate", *map(str, flags)]
        done = subprocess.run(
            command, cwd=CHECKOUT, env=os.environ | variables, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    return run


def write_prompts(file: Path, *prompts: list[int]) -> Path:
    """Prompts of these tokens, `p0`, `p1`, ..."""
    rows = [
        {"id": f"p{number}", "messages": [{"role": "user", "content": " ".join(f"t{token}" for token in prompt)}]}
        for number, prompt in enumerate(prompts)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def read_answers(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """What a run left in answers.jsonl, by draft and id."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for line in (folder / "answers.jsonl").read_text().splitlines():
        row = json.loads(line)
        found.setdefault(row["draft"], {})[row["id"]] = row
    return found
