"""Whose a container is: a label that names the task that started it, so that an orphan is found and ended.

A guard (`guard.py`) ends the container of a task that is killed. Should the guard be killed too, such as with the whole
session, the next start finds the container by this label.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import docker

LABEL = "io.eyas.owner"
USER = "io.eyas.user"
CHECKOUT_LABEL = "io.eyas.checkout"
STAGE_LABEL = "io.eyas.stage"
# Seconds between the stop signal and the kill: vLLM ends its workers, a unit in flight is given up.
GRACE = 20


def this_task() -> str:
    """The label's value for this process: process ids come back after a boot, and in another namespace."""
    return f"{_world()} {os.getpid()} {_started(os.getpid())}"


def is_gone(owner: str, *, ended: bool) -> bool:
    """Whether the task that a label names has ended; False where that cannot be known from here.

    Args:
        owner: the label's value.
        ended: whether the container has ended too: then there is nothing to lose by what another boot left.
    """
    boot, namespace, pid, started = (owner.split(" ") + [""] * 4)[:4]
    if f"{boot} {namespace}" != _world():
        return ended
    return not pid.isdigit() or _started(int(pid)) != started


def _world() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - not a path of a file


def _started(pid: int) -> str:
    """Start time of a process in clock ticks since boot, field 22 of proc(5)'s stat; empty if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    # A zombie runs nothing any more; its state is the first field after the name.
    return "" if fields[0] in {"Z", "X"} else fields[19]


def sweep(client: docker.DockerClient) -> None:
    """End and remove containers of this user whose task is gone, and say so."""
    filters: dict[str, str | list[str] | bool] = {"label": [LABEL, f"{USER}={os.getuid()}"]}
    for container in client.containers.list(all=True, filters=filters, ignore_removed=True):
        if is_gone(container.labels.get(LABEL, ""), ended=container.status in {"exited", "dead"}):
            print(f"eyas: removing container {container.name}: its task was killed", file=sys.stderr, flush=True)
            end(container)


def end(container: Any) -> None:
    """Stop a container, kill it after the grace period, and remove it; one that is gone already is fine."""
    from docker.errors import APIError, NotFound

    try:
        container.stop(timeout=GRACE)
        container.remove(force=True, v=True)
    except NotFound:
        return
    except APIError as error:
        # 409: someone else is removing it at this moment.
        if error.status_code != 409:
            raise
