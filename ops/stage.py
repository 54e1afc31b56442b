"""The seam between the two halves: a call of a stage, and the runtimes that carry it out.

Two runtimes: local, here, in a stack's environment on this machine; and docker, in `ops.container.runtime`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ops.paths import CHECKOUT
from ops.stack.model import Stack
from ops.stack.stages import stack_of


@dataclass(frozen=True, kw_only=True)
class StageCall:
    """A stage with its flags, and what it touches; all paths are absolute."""

    stage: str
    arguments: tuple[str, ...]
    reads: tuple[Path, ...] = ()
    """files and folders"""
    writes: tuple[Path, ...] = ()
    """folders, made if they are missing"""
    offline: bool = True
    """the target is on this machine, so nothing may be looked up on a model hub"""
    tp_size: int = 1
    """devices that share the target"""


class Runtime(Protocol):
    """Where stages run."""

    name: str

    def run(self, call: StageCall) -> int:
        """Run a stage to its end and return its exit code."""

    def finish(self, call: StageCall) -> None:
        """Run the last stage of a command; this process ends with its exit code."""


class LocalRuntime:
    """Runs each stage in its stack's environment on this machine, which is installed first if it is not there."""

    name = "local"

    def __init__(self, stack: Stack) -> None:
        """Remember the stack of the command; nothing is installed yet."""
        self._stack = stack

    @property
    def environment(self) -> Path:
        """Folder of the environment of the command's stack; see `ops.local.ensure` for the errors."""
        from ops.local import ensure

        return ensure(self._stack)

    def run(self, call: StageCall) -> int:
        """Run a stage in a child process."""
        return run_stage(_environment_of(call), call.stage, call.arguments, offline=call.offline)

    def finish(self, call: StageCall) -> None:
        """Turn this process into the stage."""
        become_stage(_environment_of(call), call.stage, call.arguments, offline=call.offline)


def _environment_of(call: StageCall) -> Path:
    from ops.local import ensure

    return ensure(stack_of(call.stage))


def stage_environment(*, offline: bool) -> dict[str, str]:
    """Variables a stage runs with.

    Args:
        offline: the target is on this machine, so nothing may be looked up on a model hub.
    """
    fixed = {
        "PYTHONPATH": str(CHECKOUT),
        # `python -m` would put the folder that the user stands in before the checkout.
        "PYTHONSAFEPATH": "1",
        # vLLM hashes Python objects; with a random seed two runs of one plan could differ.
        "PYTHONHASHSEED": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    return os.environ | fixed | ({"HF_HUB_OFFLINE": "1"} if offline else {})


def stage_command(environment: Path, stage: str, arguments: Sequence[str]) -> list[str]:
    """The command line of a stage."""
    return [str(environment / "bin" / "python"), "-m", "pipeline", stage, *arguments]


def run_stage(environment: Path, stage: str, arguments: Sequence[str], *, offline: bool = True) -> int:
    """Run a stage to its end and return its exit code.

    Ctrl-C reaches the stage too (it is in the same process group): it is given the time to finish what it does on
    Ctrl-C, and its exit code counts.
    """
    return wait_for(stage_command(environment, stage, arguments), stage_environment(offline=offline))


def wait_for(command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> int:
    """Run a command to its end, whatever signals come; SIGTERM is handed on to it.

    Args:
        command: its command line.
        environment: its variables.
        folder: where it runs; where the user stands when not given.
    """
    child = subprocess.Popen(command, env=environment, cwd=folder)
    before = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        while True:
            try:
                code = child.wait()
                return code if code >= 0 else 128 - code
            except KeyboardInterrupt:
                continue
    finally:
        signal.signal(signal.SIGTERM, before)


def become_stage(environment: Path, stage: str, arguments: Sequence[str], *, offline: bool = True) -> None:
    """Turn this process into the stage: what is sent to `./eyas` reaches the stage itself, and its code is ours."""
    become(stage_command(environment, stage, arguments), offline=offline)


def become(command: Sequence[str], *, offline: bool) -> None:
    """Turn this process into a command that runs with a stage's variables."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], list(command), stage_environment(offline=offline))  # noqa: S606 - no shell is wanted
