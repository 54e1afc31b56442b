"""Ends the container of a task that was killed: a small process of its own session, at the other end of a pipe.

`python guard.py NAME SECRETS`, run by `Guard`. The pipe closes when the task ends in whatever way, by SIGKILL too. A
task that has removed its container itself says "done" first. Until then this process only waits.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DONE = b"done"
# Seconds that a request to create the container, sent just before the task was killed, may still need.
IN_FLIGHT = 3


@contextmanager
def guard(name: str, secrets: Path) -> Iterator[None]:
    """Have a container ended, and a folder with secrets removed, should this process be killed.

    Args:
        name: the container's name, which it is going to have.
        secrets: the folder; it may be missing.
    """
    command = [sys.executable, "-I", __file__, name, str(secrets)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # A session of its own: Ctrl-C and a closed terminal are the task's to handle.
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, cwd="/", **quiet)  # type: ignore[call-overload]
    try:
        yield
    finally:
        shutil.rmtree(secrets, ignore_errors=True)
        with contextlib.suppress(OSError):
            watcher.communicate(DONE, timeout=30)


def main(name: str, secrets: Path) -> None:
    """Wait for the pipe to close, then end the container unless the task has."""
    if sys.stdin.buffer.read() == DONE:
        return
    shutil.rmtree(secrets, ignore_errors=True)
    # A script that is run with -I has no checkout in its path.
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
    from docker.errors import DockerException

    from ops.container.engine import connect
    from ops.container.owner import end

    client = connect()
    deadline = time.monotonic() + IN_FLIGHT
    while True:
        with contextlib.suppress(DockerException):
            end(client.containers.get(name))
            return
        if time.monotonic() > deadline:
            return
        time.sleep(0.5)


if __name__ == "__main__":
    os.umask(0o077)
    main(sys.argv[1], Path(sys.argv[2]))
