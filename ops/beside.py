"""Runs commands side by side, each with its output in a file, so that the outputs do not mix."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Seconds between two looks at what still runs: nothing beside tests that take minutes.
NAP = 0.2


@dataclass(frozen=True)
class Command:
    """A command line and the variables it runs with."""

    line: Sequence[str]
    variables: Mapping[str, str]


def run_beside(commands: Mapping[str, Command], outputs: Path, folder: Path) -> Iterator[tuple[str, int, Path]]:
    """Run commands at the same time, to their ends, whatever signals come.

    Ctrl-C reaches all of them by itself (they are in the same process group); SIGTERM is handed on to them.

    Args:
        commands: by name.
        outputs: folder for what they print.
        folder: where they run.

    Yields:
        Name, exit code (128 and the signal's number where one ended it) and output, as each of them ends.
    """
    running: dict[str, subprocess.Popen[bytes]] = {}
    before = signal.signal(signal.SIGTERM, lambda *_: _terminate(running.values()))
    try:
        for name, command in commands.items():
            running[name] = _start(command, outputs / str(len(running)), folder)
        files = {name: outputs / str(number) for number, name in enumerate(commands)}
        while running:
            for name, child in list(running.items()):
                code = child.poll()
                if code is not None:
                    del running[name]
                    yield name, code if code >= 0 else 128 - code, files[name]
            _nap()
    finally:
        signal.signal(signal.SIGTERM, before)


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


def _terminate(children: Iterable[subprocess.Popen[bytes]]) -> None:
    for child in children:
        child.terminate()


def _nap() -> None:
    try:
        time.sleep(NAP)
    except KeyboardInterrupt:
        # The commands got it as well and finish what they do then; their exit codes say so.
        return
