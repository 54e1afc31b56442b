"""Keeps an engine's chatter out of the terminal: everything its processes print goes to a log file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def output_to(log: Path) -> Iterator[TextIO]:
    """Send file descriptors 1 and 2, which child processes inherit, to the end of a log file.

    Yields:
        A stream to what standard error was, for the stage's own lines.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(fd) for fd in (1, 2)]
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        with os.fdopen(os.dup(saved[1]), "w", buffering=1) as terminal:
            yield terminal
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for fd, old in zip((1, 2), saved, strict=True):
            os.dup2(old, fd)
            os.close(old)
        os.close(sink)


def last_line(log: Path) -> str:
    """The last line of a log that names an error, shortened; empty if none does."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    telling = [line for line in lines if "Error" in line]
    return telling[-1].strip()[-300:] if telling else ""
