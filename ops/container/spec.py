"""A container as it is asked for: one description, told to the engine here and to a shell in `commandline`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ops.container.gpus import Gpus
from ops.container.mounts import Mount

# Triton and TorchInductor load libraries that they have just compiled, and the engine's tmpfs is noexec unless told.
TMPFS = "exec,mode=1777"
# Of what a container prints, for `./eyas logs`: a progress bar of days must not fill the engine's disk.
LOG_OPTIONS = {"max-size": "10m", "max-file": "2"}


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """All that differs between containers; what is the same for all of them is written in `to_config`."""

    image: str
    command: tuple[str, ...]
    """the stage and its flags; the image's entry point runs it"""
    user: str
    """UID:GID"""
    groups: tuple[int, ...] = ()
    """the user's other groups, so that what they may read is read in the container too"""
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    network: str = "none"
    shm_size: int = 1 << 30
    """bytes"""
    tty: bool = False
    console: tuple[int, int] | None = None
    """rows and columns of the terminal"""
    interactive: bool = False
    gpus: Gpus = field(default_factory=Gpus)
    entrypoint: str | None = None
    """in place of the image's own, for a shell"""


def to_config(spec: ContainerSpec, version: str) -> dict[str, Any]:
    """The JSON body that creates the container.

    Args:
        spec: the container.
        version: the engine's API version.
    """
    from docker.types import ContainerConfig, HostConfig, LogConfig
    from docker.types import Mount as EngineMount

    host = HostConfig(
        version=version,
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        ipc_mode="private",
        shm_size=spec.shm_size,
        init=True,
        network_mode=spec.network,
        tmpfs={"/tmp": TMPFS},  # noqa: S108 - the container's own
        mounts=[
            EngineMount(target=str(m.target), source=str(m.source), type="bind", read_only=m.read_only)
            for m in spec.mounts
        ],
        group_add=[str(group) for group in spec.groups],
        device_requests=spec.gpus.requests(),
        log_config=LogConfig(type=LogConfig.types.JSON, config=LOG_OPTIONS),
    )
    if spec.console:
        # docker-py has no argument for it; without it a stage draws for 80 columns until the first resize.
        host["ConsoleSize"] = list(spec.console)
    return dict(
        ContainerConfig(
            version=version,
            image=spec.image,
            command=list(spec.command),
            user=spec.user,
            environment=dict(spec.environment),
            labels=dict(spec.labels),
            tty=spec.tty,
            stdin_open=spec.interactive,
            entrypoint=spec.entrypoint,
            host_config=host,
        )
    )
