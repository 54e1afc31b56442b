"""What the command line answers to its user's mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ops.paths import CHECKOUT

TASKS = """
import sys
sys.path.insert(0, {checkout!r})
from invoke import Collection, Exit, task
from ops.errors import ChecksumError
from ops.program import run

@task
def wrong(_):
    raise ChecksumError("a file is not the pinned one")

@task
def interrupt(_):
    raise KeyboardInterrupt

@task
def stage(_):
    raise Exit(code=46)

@task
def full(_):
    raise OSError(28, "No space left on device", "/somewhere")

@task
def talk(_):
    print("one line")

@task
def bug(_):
    raise RuntimeError("a bug")

run(Collection(wrong, interrupt, stage, full, talk, bug))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(TASKS.format(checkout=str(CHECKOUT)), encoding="utf-8")
    return path


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["wrong"], 24, "eyas: a file is not the pinned one\n"),
        (["interrupt"], 130, "eyas: interrupted\n"),
        (["stage"], 46, ""),
        (["full"], 26, "eyas: /somewhere: No space left on device; free or change that place\n"),
    ],
)
def test_an_error_is_one_line_and_its_own_code(script: Path, arguments: list[str], code: int, said: str) -> None:
    done = run(script, *arguments)
    assert (done.returncode, done.stderr) == (code, said)


@pytest.mark.parametrize("arguments", [["nothing"], ["wrong", "--flag"], ["--core-flag"]])
def test_a_wrong_command_line_is_one_line_and_code_2(script: Path, arguments: list[str]) -> None:
    done = run(script, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("eyas: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_bug_keeps_its_traceback(script: Path) -> None:
    done = run(script, "bug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_a_reader_that_stops_reading_is_no_error(script: Path) -> None:
    # Unbuffered, nothing would be left to write at the end.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, str(script), "talk"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141


def test_layers_as_several_values_get_a_hint() -> None:
    done = run(CHECKOUT / "tasks.py", "extract", "--layer-ids", "2", "30", "58")
    assert done.returncode == 2
    assert "--layer-ids '2 30 58 60'" in done.stderr
