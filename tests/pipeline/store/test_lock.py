"""One run at a time, and a dead run holds nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import StoreBusyError
from pipeline.store.writer import Store
from tests.pipeline.store.fake import identity

HOLD = """
import sys, time
from pathlib import Path
from pipeline.store.lock import StoreLock
lock = StoreLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""

HOLD_AND_FORK = """
import os, sys, time
from pathlib import Path
from pipeline.store.lock import StoreLock
lock = StoreLock(Path(sys.argv[1]))
if os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(60)
"""


def test_a_second_run_is_refused_and_told_who_holds_the_store(tmp_path: Path) -> None:
    store = Store.open_for_run(tmp_path / "store", identity())
    with pytest.raises(StoreBusyError, match=f"process {os.getpid()} on "):
        Store.open_for_run(tmp_path / "store", identity())
    store.close()
    with Store.open_for_run(tmp_path / "store", identity()):
        pass


def test_a_killed_run_holds_the_store_no_longer(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StoreBusyError, match=f"process {other.pid} on "):
            Store.open_for_run(tmp_path, identity())
        other.send_signal(signal.SIGKILL)
    with Store.open_for_run(tmp_path, identity()):
        pass


def test_a_forked_child_that_outlives_a_killed_run_does_not_hold_the_store(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD_AND_FORK, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        child = int(other.stdout.readline())
        other.send_signal(signal.SIGKILL)
        other.wait()
        try:
            with Store.open_for_run(tmp_path, identity()):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_child_that_ends_does_not_release_the_runs_lock(tmp_path: Path) -> None:
    with Store.open_for_run(tmp_path / "store", identity()):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(StoreBusyError):
            Store.open_for_run(tmp_path / "store", identity())
