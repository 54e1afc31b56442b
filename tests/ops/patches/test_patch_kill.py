"""Killed, out of space, cut off, twice at once: the package is whole afterwards, or says that it is not."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.errors import UserError
from ops.patches.apply import apply
from ops.patches.errors import AlreadyAppliedError, PartlyAppliedError
from ops.patches.state import State
from ops.patches.status import status
from ops.patches.verify import verify

from .bird import Bird

ROOT = Path(__file__).parents[3]
# Everything that changes a folder. Opening a file is one only when it is for writing.
_EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "open"}


def _in_child(before_event: Callable[[int], None], series: Path, site: Path) -> int:
    """Apply in a child process that calls `before_event(n)` before its n-th change to the disk; its wait status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    count = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event not in _EVENTS:
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        count += 1
        before_event(count)

    code = 1
    try:
        sys.addaudithook(hook)
        apply(series, site)
        code = 0
    except UserError as error:
        code = error.exit_code
    finally:
        os._exit(code)


def _kill_at(number: int) -> Callable[[int], None]:
    def before_event(count: int) -> None:
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return before_event


def _whole_or_known(bird: Bird, series: Path, site: Path) -> State:
    """Each file is upstream's or the patched one, and a mixture is reported; the state."""
    found = bird.files(site)
    patched = {path for path in {*bird.upstream, *bird.patched} if bird.upstream.get(path) != bird.patched.get(path)}
    done = {path for path in patched if found.get(path) == bird.patched.get(path)}
    for path in patched - done:
        assert found.get(path) == bird.upstream.get(path)
    state = status(series, site).state
    if done and done != patched:
        assert state is State.PARTLY
    if state is State.APPLIED:
        assert done == patched
        verify(series, site)
    else:
        with pytest.raises(PartlyAppliedError):
            verify(series, site)
    return state


def _everything(site: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(site).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(site.rglob("*"))
    }


def test_a_kill_at_any_moment_leaves_the_package_whole_or_known_to_be_half_done_and_a_second_run_ends_it(
    bird: Bird,
) -> None:
    series = bird.series()
    reference = bird.install("reference")
    apply(series, reference)
    seen = []
    number = 0
    killed = True
    while killed:
        number += 1
        site = bird.install(f"site-{number}")
        ended = _in_child(_kill_at(number), series, site)
        killed = os.WIFSIGNALED(ended)
        assert killed or ended == 0
        state = _whole_or_known(bird, series, site)
        seen.append(state)
        if state is State.APPLIED:
            with pytest.raises(AlreadyAppliedError):
                apply(series, site)
        else:
            begun = status(series, site).interrupted
            assert begun or state is State.UNPATCHED
            assert apply(series, site).finished == begun
        verify(series, site)
        assert _everything(site) == _everything(reference)
    assert {State.UNPATCHED, State.PARTLY, State.APPLIED} == set(seen)
    assert seen.count(State.PARTLY) >= 7  # one for each file at least


def test_a_kill_while_finishing_can_be_finished_too(bird: Bird) -> None:
    series = bird.series()
    reference = bird.install("reference")
    apply(series, reference)
    site = bird.install()
    last = 0
    for number in range(1, 200):  # each run gets one step further than the one before
        wait_status = _in_child(_kill_at(number), series, site)
        _whole_or_known(bird, series, site)
        last = number
        if not os.WIFSIGNALED(wait_status):
            break
    assert 20 < last < 199
    verify(series, site)
    assert _everything(site) == _everything(reference)


def test_an_interrupted_run_of_another_series_is_not_finished_with_this_one(bird: Bird) -> None:
    series, site = bird.series(), bird.install()
    (site / "bird-1.2.0.dist-info/EYAS-PATCHING").write_bytes(b"")
    (site / "bird/wing.py").write_bytes(b"the other series'\n")
    before = bird.snapshot(site)
    with pytest.raises(UserError) as caught:
        apply(series, site)
    assert caught.value.exit_code == 11
    assert bird.snapshot(site) == before


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, 26), (errno.EDQUOT, 26), (errno.EROFS, 22), (errno.EIO, 22)]
)
def test_a_write_that_fails_at_any_file_changes_nothing(
    bird: Bird, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    series = bird.series()
    calls = 0
    fail_at = 1
    real = os.fsync

    def fsync(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == fail_at:
            raise OSError(number, os.strerror(number))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    site = bird.install()
    before = bird.snapshot(site)
    for moment in range(1, 10):  # six files, RECORD and the marker are written, then its folder is synced
        calls, fail_at = 0, moment
        with pytest.raises(UserError) as caught:
            apply(series, site)
        assert caught.value.exit_code == code
        assert "nothing was changed" in str(caught.value)
        assert bird.snapshot(site) == before
    monkeypatch.undo()
    apply(series, site)


def test_a_write_that_fails_while_finishing_keeps_the_knowledge_of_the_interrupted_run(
    bird: Bird, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = bird.series()
    number = 0
    while True:  # the first moment at which some files are patched and some are not
        number += 1
        site = bird.install(f"site-{number}")
        _in_child(_kill_at(number), series, site)
        if status(series, site).state is State.PARTLY:
            break

    def no_space(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(UserError):
        apply(series, site)
    monkeypatch.undo()
    assert apply(series, site).finished
    verify(series, site)


def test_a_file_size_limit_of_the_machine_is_an_error_of_one_line_and_changes_nothing(bird: Bird) -> None:
    series, site = bird.series(), bird.install()
    before = bird.snapshot(site)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))  # bytes; wing.py is larger

    command = [
        sys.executable,
        "-B",
        "-m",
        "ops.patches",
        "apply",
        "--series",
        str(series),
        "--site-packages",
        str(site),
    ]
    result = subprocess.run(command, cwd=ROOT, preexec_fn=limit, capture_output=True, text=True, check=False)
    assert result.returncode == 22, result.stderr
    assert result.stderr.startswith("eyas: ")
    assert result.stderr.count("\n") == 1
    assert bird.snapshot(site) == before


def test_two_at_once_patch_once(bird: Bird) -> None:
    series, site = bird.series(), bird.install()
    command = [
        sys.executable,
        "-B",
        "-m",
        "ops.patches",
        "apply",
        "--series",
        str(series),
        "--site-packages",
        str(site),
    ]
    runs = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    for run in runs:
        run.communicate()
    assert sorted(run.returncode for run in runs) == [0, 14, 14, 14]
    verify(series, site)


def test_a_second_run_waits_for_the_first(bird: Bird) -> None:
    series, site = bird.series(), bird.install()
    ready, go = os.pipe()

    def pause(count: int) -> None:
        if count == 1:  # the first change to the disk: the package is held
            os.write(go, b"x")
            time.sleep(0.5)

    child = os.fork()
    if not child:
        os._exit(os.waitstatus_to_exitcode(_in_child(pause, series, site)))
    os.read(ready, 1)
    with pytest.raises(AlreadyAppliedError):  # without the lock: two at work on the same temporary files
        apply(series, site)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    verify(series, site)
