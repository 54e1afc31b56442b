"""Runs commands side by side, each with its output in a file, so that the outputs do not mix."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Seconds between two looks at what still runs: nothing beside tests that take minutes.
NAP = 0.2
# Commands at the same time: engines of vLLM take some GiB each, and with more of them two cores only wait longer.
AT_ONCE = 3


@dataclass(frozen=True)
class Command:
    """A command line and the variables it runs with."""

    line: Sequence[str]
    variables: Mapping[str, str]


def run_beside(commands: Mapping[str, Command], outputs: Path, folder: Path) -> Iterator[tuple[str, int, Path]]:
    """Run commands to their ends, some at the same time and the others as these end, whatever signals come.

    Ctrl-C reaches those that run by itself (they are in the same process group); SIGTERM is handed on to them. After
    either of them no other command is started, and those that were not have the exit code that the signal gives.

    Args:
        commands: by name.
        outputs: folder for what they print.
        folder: where they run.

    Yields:
        Name, exit code (128 and the signal's number where one ended it) and output, as each of them ends.
    """
    queue = _Queue(commands, outputs, folder)
    before = signal.signal(signal.SIGTERM, lambda number, _: queue.stop(number))
    try:
        while queue.running or queue.waiting:
            queue.fill()
            yield from queue.ended()
            _nap(queue)
    finally:
        signal.signal(signal.SIGTERM, before)


class _Queue:
    """What runs, and what is yet to be started."""

    def __init__(self, commands: Mapping[str, Command], outputs: Path, folder: Path) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.waiting = dict(commands)
        self._files = {name: outputs / str(number) for number, name in enumerate(commands)}
        self._folder = folder
        self._stopped_by = 0

    def fill(self) -> None:
        while self.waiting and len(self.running) < AT_ONCE and not self._stopped_by:
            name = next(iter(self.waiting))
            self.running[name] = _start(self.waiting.pop(name), self._files[name], self._folder)

    def ended(self) -> Iterator[tuple[str, int, Path]]:
        for name, child in list(self.running.items()):
            code = child.poll()
            if code is not None:
                del self.running[name]
                yield name, code if code >= 0 else 128 - code, self._files[name]
        while self._stopped_by and self.waiting:
            name, _ = self.waiting.popitem()
            self._files[name].touch()
            yield name, 128 + self._stopped_by, self._files[name]

    def stop(self, number: int) -> None:
        self._stopped_by = number
        if number == signal.SIGTERM:
            for child in self.running.values():
                child.terminate()


def _start(command: Command, output: Path, folder: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as file:
        return subprocess.Popen(
            command.line,
            env=os.environ | command.variables,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def _nap(queue: _Queue) -> None:
    try:
        time.sleep(NAP)
    except KeyboardInterrupt:
        # The commands got it as well and finish what they do then; their exit codes say so.
        queue.stop(signal.SIGINT)
