""".ci/run around a stand-in for `./eyas`: the engine is started before and stopped after, whatever happens between."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from ops.paths import CHECKOUT

ENGINE = '#!/bin/sh\necho "engine $1" >>"$(dirname "$0")/../calls"; echo "engine: $1" >&2\n'
CLEAN = '[ "$1" = clean ] && exit\n'
EYAS = (
    f'#!/bin/sh\n{CLEAN}echo "eyas $* EYAS_CI=$EYAS_CI" >>calls\necho something\necho "3 passed, 1 failed"\nexit CODE\n'
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    shutil.copy(CHECKOUT / ".ci" / "run", tmp_path / ".ci" / "run")
    write(tmp_path / ".ci" / "engine", ENGINE)
    write(tmp_path / ".ci" / "browser", "#!/bin/sh\nexit 1\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.parametrize("code", [0, 1, 130])
def test_the_code_of_the_tests_and_their_last_line_are_the_runs_own(checkout: Path, code: int) -> None:
    write(checkout / "eyas", EYAS.replace("CODE", str(code)))
    done = subprocess.run(
        [str(checkout / ".ci" / "run")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == code
    assert done.stdout.splitlines()[-1] == "3 passed, 1 failed"
    assert (checkout / "calls").read_text().splitlines() == ["engine start", "eyas test EYAS_CI=1", "engine stop"]


def test_without_an_engine_no_test_is_run(checkout: Path) -> None:
    write(checkout / "eyas", EYAS.replace("CODE", "0"))
    write(checkout / ".ci" / "engine", "#!/bin/sh\necho 'engine: none' >&2\nexit 1\n")
    done = subprocess.run([str(checkout / ".ci" / "run")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "engine: none\n")
    assert not (checkout / "calls").exists()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_the_engine_is_stopped_when_the_run_is_ended_from_outside(checkout: Path, name: str) -> None:
    write(checkout / "eyas", f"#!/bin/sh\n{CLEAN}echo up >>calls\nexec sleep 60\n")
    run = subprocess.Popen(
        [str(checkout / ".ci" / "run")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    calls = checkout / "calls"
    while not (calls.exists() and "up" in calls.read_text()):
        assert run.poll() is None
    os.killpg(run.pid, signal.Signals[name])
    assert run.wait(timeout=60) != 0
    assert calls.read_text().splitlines()[-1] == "engine stop"
