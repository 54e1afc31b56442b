"""Whose a container is: an orphan is known by its task, and only where that can be known."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ops.container.owner import is_gone, this_task

PRINT = "from ops.container.owner import this_task; print(this_task(), flush=True); input()"


def test_a_task_that_runs_is_not_gone_and_one_that_ended_is() -> None:
    assert not is_gone(this_task(), ended=False)
    child = subprocess.Popen([sys.executable, "-c", PRINT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout
    owner = child.stdout.readline().strip()
    assert not is_gone(owner, ended=True)
    child.kill()
    # A zombie, which still has its number, runs nothing any more.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{child.pid}").exists()
    assert is_gone(owner, ended=False)
    child.wait()
    assert is_gone(owner, ended=False)


def test_a_number_that_another_process_has_by_now_is_not_the_task() -> None:
    *rest, started = this_task().split(" ")
    assert is_gone(" ".join([*rest, str(int(started) - 1)]), ended=False)


def test_of_another_machine_or_boot_only_what_has_ended_is_an_orphan() -> None:
    boot, *rest = this_task().split(" ")
    other = " ".join(["0" * len(boot), *rest])
    assert not is_gone(other, ended=False)
    assert is_gone(other, ended=True)
    namespace = this_task().replace("pid:[", "pid:[1")
    assert not is_gone(namespace, ended=False)
