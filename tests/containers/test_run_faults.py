"""Faults while a container runs, as the one who runs `./eyas` meets them: a sentence, a code, and nothing left."""

# ruff: noqa: S108 - paths of a container
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
from tests.containers.running import begun, containers_of, finish, running_container, stage_flags, wait_until


@pytest.fixture(scope="module")
def stand_in(engine: Any) -> Iterator[str]:
    with running.stand_in_image(engine, "eyas-test-stage:waits") as name:
        yield name


@pytest.fixture
def own(tmp_path: Path) -> list[str]:
    """The flags of a stage on folders of this test."""
    return ["extract", "--runtime", "docker", "--gpus", "none", *stage_flags(tmp_path)]


def nothing_left(engine: Any, folder: Path, container: Any) -> None:
    assert containers_of(engine, folder) == []
    # The guard names the container.
    wait_until(lambda: not running.process_ids_naming(container.name), "the last process to end")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_to_the_task_ends_the_stage_well(
    name: str, engine: Any, stand_in: str, own: list[str], tmp_path: Path
) -> None:
    task, container = begun(engine, tmp_path, own, {"EYAS_IMAGE": stand_in})
    os.killpg(task.pid, signal.Signals[name])
    code, out, err = finish(task)
    assert (code, out) == (130, "stopped\n")
    assert "eyas: stopping the container, for up to 20 s" in err
    assert "Traceback" not in err
    nothing_left(engine, tmp_path, container)


def test_a_second_ctrl_c_kills_a_stage_that_does_not_listen(engine: Any, own: list[str], tmp_path: Path) -> None:
    deaf = running.STAND_IN.replace("echo stopped; exit 130", "echo deaf")
    with running.stand_in_image(engine, "eyas-test-stage:deaf", deaf) as image:
        task, container = begun(engine, tmp_path, own, {"EYAS_IMAGE": image})
        os.killpg(task.pid, signal.SIGINT)
        assert task.stdout
        assert task.stdout.readline() == "deaf\n"
        os.killpg(task.pid, signal.SIGINT)
        code, _, err = finish(task)
    assert code == 130
    assert "eyas: killing the container" in err
    nothing_left(engine, tmp_path, container)


def test_a_killed_task_leaves_no_container(engine: Any, stand_in: str, own: list[str], tmp_path: Path) -> None:
    task, container = begun(engine, tmp_path, own, {"EYAS_IMAGE": stand_in})
    task.kill()
    assert finish(task)[0] == -signal.SIGKILL
    wait_until(lambda: not containers_of(engine, tmp_path), "the container to be removed")
    nothing_left(engine, tmp_path, container)


def test_what_a_killed_session_leaves_is_removed_by_the_next_start(
    engine: Any, stand_in: str, own: list[str], tmp_path: Path
) -> None:
    task, container = begun(engine, tmp_path, own, {"EYAS_IMAGE": stand_in})
    (guard,) = running.process_ids_naming(f"guard.py {container.name}")
    os.kill(guard, signal.SIGKILL)
    task.kill()
    finish(task)
    assert [one.status for one in containers_of(engine, tmp_path)] == ["running"]
    after, _ = begun(engine, tmp_path, own, {"EYAS_IMAGE": stand_in})
    assert container.id not in {one.id for one in containers_of(engine, tmp_path)}
    os.killpg(after.pid, signal.SIGINT)
    code, _, err = finish(after)
    assert (code, f"eyas: removing container {container.name}: its task was killed" in err) == (130, True)
    nothing_left(engine, tmp_path, container)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [("kill", "was killed from outside"), ("stop", "was stopped from outside"), ("remove", "was killed from outside")],
)
def test_a_container_ended_by_someone_else_is_told_apart(
    how: str, sentence: str, engine: Any, stand_in: str, own: list[str], tmp_path: Path
) -> None:
    task, container = begun(engine, tmp_path, own, {"EYAS_IMAGE": stand_in})
    container.remove(force=True) if how == "remove" else getattr(container, how)()
    code, _, err = finish(task)
    assert code == 57
    assert f"container {container.name} {sentence}" in err
    assert "Traceback" not in err
    nothing_left(engine, tmp_path, container)


def test_a_container_out_of_memory_says_so(engine: Any, own: list[str], tmp_path: Path) -> None:
    """/tmp of a container is memory: it counts against a limit that another program sets while the container runs."""
    eats = running.STAND_IN.replace("sleep 0.1", "sleep 0.1; [ -e /tmp/now ] && cat /dev/zero > /tmp/full")
    with running.stand_in_image(engine, "eyas-test-stage:eats", eats) as image:
        task, container = begun(engine, tmp_path, own, {"EYAS_IMAGE": image})
        container.update(mem_limit="32m", memswap_limit="32m")
        container.exec_run(["touch", "/tmp/now"])
        code, _, err = finish(task)
    assert code == 57, err
    assert "ran out of memory" in err or "was killed from outside" in err
    nothing_left(engine, tmp_path, container)


def test_output_comes_as_it_is_printed_and_the_streams_stay_apart(
    engine: Any, stand_in: str, own: list[str], tmp_path: Path
) -> None:
    task, container = begun(engine, tmp_path, own, {"EYAS_IMAGE": stand_in})
    assert container.attrs["Config"]["Tty"] is False
    os.killpg(task.pid, signal.SIGINT)
    _, out, err = finish(task)
    assert out == "stopped\n"
    assert "aside\n" in err


def test_on_a_terminal_the_stage_has_one_of_the_same_size(engine: Any, own: list[str], tmp_path: Path) -> None:
    import fcntl
    import struct
    import termios

    script = "trap 'exit 130' INT; [ -t 1 ] && [ -t 2 ] && echo has a terminal $TERM; while :; do sleep 0.1; done"
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    with running.stand_in_image(engine, "eyas-test-stage:terminal", script) as image:
        environment = os.environ | {"EYAS_IMAGE": image, "TERM": "xterm-kitty"}
        task = subprocess.Popen(
            [*running.EYAS, *own], env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        said = b""
        while b"has a terminal xterm-kitty" not in said:
            said += os.read(ours, 1000)
        container = running_container(engine, tmp_path)
        size = engine.api.inspect_container(container.id)["HostConfig"]["ConsoleSize"]
        os.killpg(task.pid, signal.SIGINT)
        assert task.wait(running.PATIENCE) == 130
    assert size == [33, 111]
    nothing_left(engine, tmp_path, container)


def test_a_reader_that_has_enough_ends_the_stage(engine: Any, own: list[str], tmp_path: Path) -> None:
    talks = running.STAND_IN.replace("sleep 0.1", "sleep 0.1; echo more")
    with running.stand_in_image(engine, "eyas-test-stage:talks", talks) as image:
        task, container = begun(engine, tmp_path, own, {"EYAS_IMAGE": image})
        assert task.stdout
        task.stdout.close()
        task.stdout = None
        assert task.wait(running.PATIENCE) == 141
    nothing_left(engine, tmp_path, container)
