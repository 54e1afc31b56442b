"""The docker runtime: each stage in a container of its own, which is gone when the stage is."""

from __future__ import annotations

import secrets
import shutil
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import invoke

from ops import probes
from ops.container import mounts
from ops.container.assemble import Host, assemble, folders, say, this_host
from ops.container.commandline import printed
from ops.container.engine import connect
from ops.container.errors import StartError
from ops.container.gpus import Gpus
from ops.container.guard import guard
from ops.container.hub import write_token
from ops.container.image import find_image
from ops.container.owner import LABEL, sweep, this_task
from ops.container.session import run_container
from ops.container.spec import ContainerSpec
from ops.image.names import image_name
from ops.stack.model import Stack
from ops.stack.stages import STACK_OF, stack_of
from ops.stage import StageCall

# Room for what libraries compile and keep in /cache.
CACHE_MIB = 512
MIB = 1 << 20


class DockerRuntime:
    """Runs each stage in a container of its stack's image; see `ops.stage.Runtime`."""

    name = "docker"

    def __init__(self, stack: Stack, gpus: Gpus) -> None:
        """Remember what to run with; nothing is asked of the engine yet.

        Args:
            stack: the command's; a stage of another one, such as what writes the demo's target, runs in that image.
            gpus: which GPUs the container gets.
        """
        self._stack = stack
        self.gpus = gpus
        self._images: dict[str, str] = {}

    @cached_property
    def _client(self) -> Any:
        client = connect()
        sweep(client)
        return client

    @property
    def image(self) -> str:
        """The id of the image of the command's stack; see `image_of` for the errors."""
        return self.image_of(self._stack)

    def image_of(self, stack: Stack) -> str:
        """The id of a stack's image, looked up and checked once: all its stages in a command run in the same.

        Raises:
            UserError: no engine (50, 51), no image of this checkout (52, 53), or GPUs that cannot be used (54).
        """
        if stack.name not in self._images:
            found = find_image(self._client, stack, self.gpus.accelerator)
            self.gpus.check(probes.driver(), probes.gpus())
            self._images[stack.name] = found
        return self._images[stack.name]

    def run(self, call: StageCall) -> int:
        """Run a stage to its end and return its exit code; see `run_container` for the errors."""
        name = f"eyas-{call.stage}-{secrets.token_hex(4)}"
        image, host = self.image_of(stack_of(call.stage)), this_host(name)
        mounts.make_folders(folders(call, host))
        write_token(host.environment, host.secrets) if not call.offline else None
        try:
            spec = assemble(call, image, self.gpus, host)
            _check(spec, host)
        except BaseException:
            shutil.rmtree(host.secrets, ignore_errors=True)
            raise
        owned = replace(spec, labels={**spec.labels, LABEL: this_task()})
        with guard(name, host.secrets):
            return run_container(self._client, owned, name, probes.driver())

    def finish(self, call: StageCall) -> None:
        """Run the last stage of a command.

        Raises:
            invoke.Exit: it failed, with its exit code.
        """
        code = self.run(call)
        if code:
            raise invoke.Exit(code=code)

    def show(self, call: StageCall) -> None:
        """Print the `docker run` line of a call; nothing is started, made or asked of the engine."""
        print(self.line(call))
        say("nothing was started: run that line, or the same with --dry-run at its end for the plan of the stage")

    def line(self, call: StageCall) -> str:
        """The `docker run` line of a call, which needs no engine."""
        host = this_host("dry-run")
        named = image_name(STACK_OF[call.stage], self.gpus.accelerator)
        spec = assemble(call, named, self.gpus, replace(host, environment=_without_token(host)))
        return printed(spec, [str(folder) for folder in folders(call, host)])


def _without_token(host: Host) -> dict[str, str]:
    """The variables without a token: the file it is put into does not outlive a command."""
    names = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
    if any(name in host.environment for name in names):
        say("HF_TOKEN is not in the line: put the token into a file and name it in HF_TOKEN_PATH")
    return {name: value for name, value in host.environment.items() if name not in names}


def _check(spec: ContainerSpec, host: Host) -> None:
    """Refuse early what the container would fail of.

    Raises:
        StartError: a mount, or the disk.
    """
    mounts.check(spec.mounts)
    _check_space(host.cache)


def _check_space(cache: Path) -> None:
    free = shutil.disk_usage(cache).free
    if free < CACHE_MIB * MIB:
        raise StartError(
            f"{cache} has {free // MIB} MiB free, {CACHE_MIB} are needed for what a target's libraries compile; free "
            "some, or set XDG_CACHE_HOME to a larger disk"
        )
