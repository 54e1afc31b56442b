"""Runs uv, the installer that the host environment carries."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def run_uv(arguments: Sequence[str], *, folder: Path | None = None, show: bool = False) -> tuple[int, str]:
    """Run uv to its end.

    Args:
        arguments: its command line.
        folder: where it runs, so that no other project's settings reach it.
        show: let uv draw its own progress on the terminal.

    Returns:
        Its exit code and what it said on stderr (empty when shown).
    """
    from uv import find_uv_bin

    # The machine's Python or none: a downloaded interpreter is pinned by nothing in this project.
    environment = os.environ | {"UV_PYTHON_DOWNLOADS": "never"}
    environment.pop("VIRTUAL_ENV", None)
    done = subprocess.run(
        [find_uv_bin(), *arguments],
        cwd=folder,
        env=environment,
        stdout=sys.stderr if show else subprocess.DEVNULL,
        stderr=None if show else subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr or ""


def reason(said: str) -> str:
    """What uv said, as part of one line: its error and causes without its drawing."""
    lines = [line.strip(" \t│├╰─▶×-") for line in said.splitlines()]
    kept = [line.removeprefix("error: ").removeprefix("cause: ") for line in lines if line]
    return "; ".join(kept[:6]) or "uv gave no reason (it may have said it above)"
