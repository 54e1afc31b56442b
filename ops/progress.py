"""What a user sees of long work: a live line on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn


def on_terminal() -> bool:
    """Whether someone may be watching stderr."""
    return sys.stderr.isatty()


class Download:
    """A live line for one download."""

    def __init__(self, what: str, total: int) -> None:
        self._progress = Progress(
            TextColumn(what),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not on_terminal(),
        )
        self._task = self._progress.add_task(what, total=total or None)

    def advance(self, size: int) -> None:
        """Say that `size` more bytes have come."""
        self._progress.advance(self._task, size)

    def __enter__(self) -> Download:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
