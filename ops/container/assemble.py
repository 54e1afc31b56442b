"""From a call of a stage to the container that runs it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ops.container.gpus import Gpus
from ops.container.hub import HubAccess, hub_access
from ops.container.mounts import Mount, same_path
from ops.container.owner import CHECKOUT_LABEL, STAGE_LABEL, USER
from ops.container.shm import shm_size
from ops.container.spec import ContainerSpec
from ops.paths import CHECKOUT, cache_root
from ops.stage import StageCall

CACHE = Path("/cache")


@dataclass(frozen=True, kw_only=True)
class Host:
    """What a container takes over from this machine and its user."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    environment: Mapping[str, str]
    home: Path
    cache: Path
    """folder for what libraries compile and keep, the container's /cache"""
    secrets: Path
    """private folder for the time of one container"""
    terminal: tuple[int, int] | None
    """its rows and columns, where standard output and error both go to it"""


def this_host(name: str) -> Host:
    """The machine and user that this process has; `name` is the container's."""
    size = shutil.get_terminal_size()
    on_terminal = os.isatty(1) and os.isatty(2)
    # Path.home() needs a passwd entry where HOME is not set; such a user has a cache by XDG_CACHE_HOME.
    home = os.environ.get("HOME") or os.environ.get("XDG_CACHE_HOME") or str(Path.home())
    return Host(
        uid=os.getuid(),
        gid=os.getgid(),
        groups=tuple(sorted(set(os.getgroups()) - {os.getgid()})),
        environment=os.environ,
        home=Path(home),
        cache=cache_root() / "container",
        secrets=cache_root() / "secrets" / name,
        terminal=(size.lines, size.columns) if on_terminal else None,
    )


def assemble(call: StageCall, image: str, gpus: Gpus, host: Host) -> ContainerSpec:
    """The container that runs a stage.

    Raises:
        UserError: a path that cannot be mounted, or a size of /dev/shm that is too small.
    """
    hub = None if call.offline else hub_access(host.environment, host.home, host.secrets)
    return ContainerSpec(
        image=image,
        command=(call.stage, *call.arguments),
        user=f"{host.uid}:{host.gid}",
        groups=host.groups,
        mounts=(Mount(target=CACHE, source=host.cache, read_only=False), *_mounts(call, hub)),
        environment={**(hub.environment if hub else {}), **_terminal(host)},
        labels={STAGE_LABEL: call.stage, CHECKOUT_LABEL: str(CHECKOUT), USER: str(host.uid)},
        network=hub.network if hub else "none",
        shm_size=shm_size(host.environment, call.tp_size),
        tty=host.terminal is not None,
        console=host.terminal,
        gpus=gpus,
    )


def _mounts(call: StageCall, hub: HubAccess | None) -> tuple[Mount, ...]:
    return (*same_path(call.reads, call.writes), *(hub.mounts if hub else ()))


def _terminal(host: Host) -> dict[str, str]:
    # What the terminal can do decides how progress is drawn.
    names = ("TERM", "COLORTERM", "NO_COLOR") if host.terminal else ()
    return {name: host.environment[name] for name in names if name in host.environment}


def folders(call: StageCall, host: Host) -> list[Path]:
    """The folders that must be there before, made by the invoking user."""
    hub = [] if call.offline else [hub_access(host.environment, host.home, host.secrets).cache]
    return [host.cache, *call.writes, *hub]


def say(text: str) -> None:
    """One line to standard error."""
    print(f"eyas: {text}", file=sys.stderr, flush=True)
