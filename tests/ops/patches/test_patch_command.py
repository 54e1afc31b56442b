"""The command: exit codes, one line on stderr, and no need of anything but the standard library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .bird import Bird

ROOT = Path(__file__).parents[3]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    # -S and -E: without site-packages, as in an image build
    command = [sys.executable, "-S", "-E", "-B", "-m", "ops.patches", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_apply_status_and_verify_need_no_package(bird: Bird) -> None:
    where = ("--series", bird.series(), "--site-packages", bird.install())
    assert run("verify", *where).returncode == 13
    assert "unpatched" in run("status", *where).stdout
    done = run("apply", *where)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "bird 1.2.0: 2 patches applied, 7 files changed\n"
    assert run("verify", *where).returncode == 0
    assert "bird 1.2.0: applied" in run("status", *where).stdout


@pytest.mark.parametrize("command", ["apply", "verify"])
def test_an_error_is_one_line_and_its_exit_code(bird: Bird, command: str) -> None:
    result = run(command, "--series", bird.series(), "--site-packages", bird.install(version="1.3.0"))
    assert (result.returncode, result.stdout) == (10, "")
    assert result.stderr.startswith("eyas: bird 1.3.0 is installed")
    assert result.stderr.count("\n") == 1


def test_a_wrong_command_line_exits_2() -> None:
    assert run("apply").returncode == 2
    assert run().returncode == 2
