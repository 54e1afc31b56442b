"""The live line of a run: answers, tokens, tokens a second, time left; and what happened when, in `events.jsonl`.

Shown on a terminal only: in a log file or a pipe a line that redraws itself is noise.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pipeline.regenerate.generator import Answer


class AnswerProgress:
    """Counts answers; draws them, and appends every unit to `events.jsonl`."""

    def __init__(self, terminal: TextIO, events: Path, *, rows: int, done_rows: int) -> None:
        """Start the clock.

        Args:
            terminal: where to draw.
            events: the file of events, one JSON object a line.
            rows: of the whole input.
            done_rows: of these, finished by earlier runs.
        """
        self.answers = self.tokens = 0
        self._rows = done_rows
        self._unit_dialogues: set[str] = set()
        self._started = time.monotonic()
        console = Console(file=terminal)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}% {task.fields[figures]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("regenerate", total=rows, completed=done_rows, figures="loading the target")
        events.parent.mkdir(parents=True, exist_ok=True)
        self._events = events.open("a", buffering=1)
        self.event("start", rows=rows, done=done_rows)

    @property
    def seconds(self) -> float:
        """Since the target was loaded."""
        return time.monotonic() - self._started

    @property
    def rate(self) -> float:
        """Tokens a second, of this run."""
        return self.tokens / self.seconds if self.tokens else 0.0

    def event(self, name: str, **fields: Any) -> None:
        """Note something in `events.jsonl`, with the time in seconds since the epoch."""
        self._events.write(json.dumps({"time": round(time.time(), 3), "event": name, **fields}) + "\n")

    def engine_ready(self) -> None:
        """The target is loaded: the rate counts from here."""
        self.event("engine ready", seconds=round(self.seconds, 3))
        self._started = time.monotonic()

    def answered(self, answer: Answer) -> None:
        """Count an answer. A row moves the bar with its first one: how many turns will follow is not known."""
        self.answers += 1
        self.tokens += len(answer.produced)
        self._unit_dialogues.add(answer.name.rpartition("#")[0])
        self._draw(self._rows + len(self._unit_dialogues))

    def unit_done(self, unit: int, rows: int) -> None:
        """Count a unit that is on the disk."""
        self._rows += rows
        self._unit_dialogues.clear()
        self.event(
            "unit", unit=unit, rows=rows, answers=self.answers, tokens=self.tokens, seconds=round(self.seconds, 3)
        )
        self._draw(self._rows)

    def _draw(self, rows: int) -> None:
        figures = f"{self.answers:,} answers · {self.tokens:,} tokens · {self.rate:,.0f} tok/s"
        self._bar.update(self._task, completed=rows, figures=figures)

    def __enter__(self) -> AnswerProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        self.event("end", completed=error is None, error=str(error) if error else None)
        self._events.close()
