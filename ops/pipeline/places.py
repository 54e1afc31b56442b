"""Where the steps run: for each stage its stack, and the runtime chosen for that."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from ops.container.choice import choose
from ops.errors import LockError
from ops.local import environment_folder
from ops.stack.digest import patch_list, stack_digest
from ops.stack.model import STACKS, load
from ops.stack.stages import STACK_OF, stack_of
from ops.stage import LocalRuntime, Runtime, StageCall, stage_command, stage_environment


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The stack of a stage."""

    name: str
    accelerator: str
    digest: str | None
    """None where it has no lock"""
    patches: tuple[str, ...]


class Places(Protocol):
    """What runs the stages."""

    def identity(self, stage: str) -> Identity:
        """The stack that the stage runs in."""

    def ready(self, stages: Iterable[str]) -> None:
        """Have everything there that these stages run in, before the first of them starts."""

    def run(self, call: StageCall) -> int:
        """Run a stage to its end and return its exit code."""

    def line(self, call: StageCall) -> str:
        """The shell line of what `run` would run."""


class Stacks:
    """The real places: stacks under stacks/, in the local or the docker runtime."""

    def __init__(self, runtime: str | None, gpus: str | None) -> None:
        """Remember what was asked for.

        Args:
            runtime: auto, docker or local.
            gpus: the value of --gpus.
        """
        self._asked = (runtime, gpus)
        self.runtime = cache(self._choose)
        """by name of the stack; see `ops.container.choice.choose` for the errors"""

    def _choose(self, name: str) -> Any:
        return choose(load(STACKS / name), *self._asked)

    def of(self, stage: str) -> Runtime:
        """The runtime of a stage."""
        chosen: Runtime = self.runtime(STACK_OF[stage])
        return chosen

    def identity(self, stage: str) -> Identity:
        """See `Places`."""
        stack, accelerator = stack_of(stage), self._accelerator(stage)
        try:
            digest, patches = stack_digest(stack, accelerator), tuple(patch["name"] for patch in patch_list(stack))
        except LockError:
            digest, patches = None, ()
        return Identity(name=stack.name, accelerator=accelerator, digest=digest, patches=patches)

    def ready(self, stages: Iterable[str]) -> None:
        """Install the environments, or check the images; errors are the runtimes' (exit codes 20 to 27, 50 to 58)."""
        for stage in dict.fromkeys(stages):
            runtime: Any = self.of(stage)
            _ = runtime.environment if isinstance(runtime, LocalRuntime) else runtime.image

    def run(self, call: StageCall) -> int:
        """See `Places`."""
        return self.of(call.stage).run(call)

    def line(self, call: StageCall) -> str:
        """See `Places`; local commands with the variables that are set for them."""
        runtime: Any = self.of(call.stage)
        return local_line(call) if isinstance(runtime, LocalRuntime) else str(runtime.line(call))

    def _accelerator(self, stage: str) -> str:
        runtime: Any = self.of(stage)
        return "cpu" if isinstance(runtime, LocalRuntime) else str(runtime.gpus.accelerator)


def local_line(call: StageCall) -> str:
    """The shell line of a stage in the local runtime."""
    variables = stage_environment(offline=call.offline)
    own = [f"{name}={value}" for name, value in variables.items() if os.environ.get(name) != value]
    environment = environment_folder(stack_of(call.stage), "cpu")
    return shlex.join([*own, *stage_command(environment, call.stage, call.arguments)])
