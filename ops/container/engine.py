"""The Docker engine: found as the docker command line finds it, with a sentence for each way that fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ops.container.errors import EngineAccessError, NoEngineError

if TYPE_CHECKING:
    import docker

# Seconds for one answer of the engine. Starting a container from an image of 10 GiB that was never started takes some.
TIMEOUT = 120


def connect(timeout: int = TIMEOUT) -> docker.DockerClient:
    """A client of the engine that `docker` would talk to: DOCKER_HOST, else the current context, else the socket.

    Args:
        timeout: seconds that the engine has for each answer.

    Raises:
        NoEngineError: none answers.
        EngineAccessError: it is there, and this user may not talk to it.
    """
    import docker
    from docker.errors import DockerException

    where = "the context"
    try:
        address = _address()
        where = address.get("base_url") or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        client = docker.DockerClient(timeout=timeout, **address) if address else docker.from_env(timeout=timeout)
        client.ping()
    except (DockerException, OSError) as error:
        raise _explained(where, error) from error
    return client


def _address() -> dict[str, Any]:
    """What docker-py is told of the current context: it honours DOCKER_HOST by itself, and no context.

    Raises:
        NoEngineError: the context that is asked for does not exist.
    """
    from docker.context import ContextAPI

    # docker's own order: DOCKER_HOST before DOCKER_CONTEXT before the context of `docker context use`.
    if os.environ.get("DOCKER_HOST"):
        return {}
    name = os.environ.get("DOCKER_CONTEXT")
    context = ContextAPI.get_context(name)
    if context is None:
        # docker-py looks for contexts only where a configuration file is, which this command writes.
        raise NoEngineError(
            f"no docker context {name or 'of the name that is set'} is found: see docker context ls, then "
            "docker context use NAME"
        )
    if context.name == "default" or not context.Host:
        return {}
    return {"base_url": context.Host, "tls": context.TLSConfig or False}


def _explained(where: str, error: Exception) -> NoEngineError | EngineAccessError:
    said = " ".join(str(error).split())
    if "Permission denied" in said or "Errno 13" in said:
        return EngineAccessError(
            f"this user may not talk to the Docker engine at {where}: sudo usermod -aG docker $USER, then log in again"
        )
    if where.startswith("ssh://"):
        return NoEngineError(f"no Docker engine at {where}: engines over ssh are not supported, run eyas over there")
    if where.startswith("unix://") and not Path(where.removeprefix("unix://")).exists():
        return NoEngineError(
            f"no Docker engine at {where}: install one (docs/containers.md) or start it (sudo systemctl start docker), "
            "or use --runtime local"
        )
    return NoEngineError(
        f"no Docker engine answers at {where} ({said[:200]}): start it, or set DOCKER_HOST, or use --runtime local"
    )


def docker_cli() -> list[str]:
    """The docker command that can build: the first in PATH, else the system's own, that has buildx.

    Raises:
        NoEngineError: neither has it.
    """
    for tool in _tools():
        done = subprocess.run([tool, "buildx", "version"], capture_output=True, check=False)
        if done.returncode == 0:
            return [tool]
    raise NoEngineError("no docker command with buildx: install docker-ce-cli and docker-buildx-plugin")


def any_cli() -> str:
    """Any docker command, to run a container with.

    Raises:
        NoEngineError: there is none.
    """
    tool = next(_tools(), None)
    if tool is None:
        raise NoEngineError("no docker command in PATH: install docker-ce-cli")
    return tool


def _tools() -> Iterator[str]:
    first, system = shutil.which("docker"), "/usr/bin/docker"
    if first:
        yield first
    if first != system and os.access(system, os.X_OK):
        yield system
