"""SIGKILL at a line of the store's own code, whichever thread executes it."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any


def killed(work: Callable[[], object], line: int, start: str = "open_for_run") -> bool:
    """Do it in a child that is killed at its n-th line after it first entered a function; returns whether it was."""
    child = os.fork()
    if child == 0:
        try:
            kill_at(line, start)
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a child must not go on as a second pytest
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "it failed by itself"
    return os.WIFSIGNALED(status)


def kill_at(line: int, start: str) -> None:
    """SIGKILL this process at the n-th line that its threads execute in the store's code after `start` began."""
    lines, started = itertools.count(1), threading.Event()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if "/pipeline/store/" not in frame.f_code.co_filename or "tests" in frame.f_code.co_filename:
            return None
        if frame.f_code.co_name == start:
            started.set()
        if event == "line" and started.is_set() and next(lines) == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
