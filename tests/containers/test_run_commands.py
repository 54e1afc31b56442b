"""`./eyas shell`, `logs` and `stop`, and `--dry-run`: around containers that a test started."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.containers import running
from tests.containers.running import begun, containers_of, finish, run, running_container, stage_flags, start


@pytest.fixture(scope="module")
def stand_in(engine: Any) -> Iterator[str]:
    with running.stand_in_image(engine, "eyas-test-commands:waits") as name:
        yield name


@pytest.fixture
def mounts(tmp_path: Path) -> list[str]:
    """Flags about folders of this test."""
    return stage_flags(tmp_path)


@pytest.fixture
def stage(engine: Any, stand_in: str, mounts: list[str], tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """A task whose stage runs, and its container."""
    flags = ["extract", "--runtime", "docker", "--gpus", "none", *mounts]
    task, container = begun(engine, tmp_path, flags, {"EYAS_IMAGE": stand_in})
    yield task, container
    if task.poll() is None:
        os.killpg(task.pid, signal.SIGINT)
        finish(task)


def test_stop_ends_what_runs_and_says_which(stage: tuple[Any, Any], engine: Any, tmp_path: Path) -> None:
    task, container = stage
    code, _, err = run(["stop"])
    assert code == 0
    assert f"stopping {container.name}" in err
    code, out, err = finish(task)
    assert (code, out) == (57, "stopped\n")
    assert "stopped from outside (./eyas stop" in err
    assert containers_of(engine, tmp_path) == []


def test_logs_show_both_streams_until_now_and_with_follow_until_the_end(stage: tuple[Any, Any]) -> None:
    task, container = stage
    code, out, err = run(["logs"])
    assert (code, sorted(out.splitlines())) == (0, ["aside", "begun"])
    assert err == f"eyas: container {container.name}, running\n"
    follower = start(["logs", "--follow"])
    assert follower.stdout
    assert {follower.stdout.readline() for _ in range(2)} == {"aside\n", "begun\n"}
    os.killpg(task.pid, signal.SIGINT)
    assert finish(task)[0] == 130
    code, out, _ = finish(follower)
    assert (code, out) == (0, "stopped\n")


def test_a_shell_sees_what_a_stage_would_and_ends_with_its_own_code(
    engine: Any, stand_in: str, mounts: list[str], tmp_path: Path
) -> None:
    words = f"id -u; touch {tmp_path}/store/made; touch {tmp_path}/target/made || echo refused; exit 7"
    done = subprocess.run(
        [*running.EYAS, "shell", "--gpus", "none", *mounts],
        env=os.environ | {"EYAS_IMAGE": stand_in},
        input=words,
        capture_output=True,
        text=True,
        timeout=running.PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, f"{os.getuid()}\nrefused\n"), done.stderr
    assert (tmp_path / "store" / "made").stat().st_uid == os.getuid()
    assert not (tmp_path / "target" / "made").exists()
    assert containers_of(engine, tmp_path) == []


def test_a_shell_on_a_terminal_is_interactive(engine: Any, stand_in: str, mounts: list[str], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    task = subprocess.Popen(
        [*running.EYAS, "shell", "--gpus", "none", *mounts],
        env=os.environ | {"EYAS_IMAGE": stand_in},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    running_container(engine, tmp_path)
    os.write(ours, b"[ -t 0 ] && echo ask$((40+2)); exit 3\n")
    said = b""
    try:
        while b"ask42" not in said:
            said += os.read(ours, 1000)
        assert task.wait(running.PATIENCE) == 3
    finally:
        os.close(ours)
    assert containers_of(engine, tmp_path) == []


def test_a_dry_run_starts_nothing_and_its_line_runs_as_it_is(
    engine: Any, stand_in: str, mounts: list[str], tmp_path: Path
) -> None:
    flags = ["extract", "--runtime", "docker", "--gpus", "none", "--dry-run", *mounts]
    code, line, err = run(flags, {"EYAS_IMAGE": stand_in, "DOCKER_HOST": f"unix://{tmp_path}/no-engine-is-asked"})
    assert (code, line.count("\n")) == (0, 1)
    assert "nothing was started" in err
    assert not (tmp_path / "store").exists()
    task = subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert task.stdout
    assert task.stdout.readline() == "begun\n"
    running_container(engine, tmp_path).kill("SIGINT")
    code, out, _ = finish(task)
    assert (code, out) == (130, "stopped\n")
    assert (tmp_path / "store").stat().st_uid == os.getuid()
