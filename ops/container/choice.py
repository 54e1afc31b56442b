"""Which runtime a stage runs in: the one asked for, or the one that fits this machine, with the reason."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ops.container.errors import GpuError, RuntimeFlagError
from ops.container.gpus import ALL, NONE, Gpus, parse
from ops.errors import UserError
from ops.stack.model import Stack
from ops.stage import LocalRuntime

if TYPE_CHECKING:
    from ops.container.runtime import DockerRuntime

VARIABLE = "EYAS_RUNTIME"
AUTO, DOCKER, LOCAL = "auto", "docker", "local"


def choose(stack: Stack, runtime: str | None, gpus: str | None) -> LocalRuntime | DockerRuntime:
    """The runtime for a stage.

    Args:
        stack: what the stage runs in.
        runtime: auto, docker or local; when not given, EYAS_RUNTIME's value, else auto.
        gpus: the value of --gpus; when not given, all that there are.

    Raises:
        RuntimeFlagError: a value that means nothing.
        GpuError: GPUs for the local runtime.
        UserError: auto with GPUs asked for, and no container can have them (50 to 54).
    """
    asked = runtime or os.environ.get(VARIABLE) or AUTO
    if asked not in {AUTO, DOCKER, LOCAL}:
        raise RuntimeFlagError(f"runtime {asked}: give auto, docker or local (--runtime, or {VARIABLE})")
    wanted = parse(gpus) if gpus else None
    if asked == DOCKER:
        return _docker(stack, wanted if wanted is not None else _present())
    if asked == LOCAL:
        if wanted:
            # The local stack is the one for CPUs: a flag that does nothing would be believed.
            raise GpuError(f"--gpus {gpus}: the local runtime uses no GPU; give --runtime docker, or --gpus {NONE}")
        return LocalRuntime(stack)
    return _automatic(stack, wanted)


def _automatic(stack: Stack, wanted: Gpus | None) -> LocalRuntime | DockerRuntime:
    if wanted is not None and not wanted:
        return _local(stack, f"--gpus {NONE}, and the CPU stack installs by itself")
    if wanted:
        _say(f"runtime docker: --gpus asks for GPUs, which the local runtime does not use ({_other(LOCAL)})")
        return _docker(stack, wanted)
    present = _present()
    if not present:
        return _local(stack, "no GPU here, and the CPU stack installs by itself")
    docker = _docker(stack, present)
    try:
        fits = docker.image
    except UserError as error:
        return _local(stack, f"the CPU stack, although there is a GPU: {error}")
    _say(f"runtime docker: a GPU, an engine, and an image of this checkout ({fits[:19]}; {_other(LOCAL)})")
    return docker


def _present() -> Gpus:
    from ops import probes

    return parse(ALL if probes.gpus() else NONE)


def _docker(stack: Stack, gpus: Gpus) -> DockerRuntime:
    from ops.container.runtime import DockerRuntime

    return DockerRuntime(stack, gpus)


def _local(stack: Stack, why: str) -> LocalRuntime:
    _say(f"runtime local: {why} ({_other(DOCKER)})")
    return LocalRuntime(stack)


def _other(runtime: str) -> str:
    return f"otherwise: --runtime {runtime}"


def _say(text: str) -> None:
    import sys

    print(f"eyas: {text}", file=sys.stderr, flush=True)
