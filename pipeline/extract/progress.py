"""The live line of a run (samples, tokens, tokens a second, time left, bytes), and the table at its end.

Shown on a terminal only: in a log file or a pipe a line that redraws itself is noise, `events.jsonl` has the figures.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from pipeline.store.records import UnitReport


class RunProgress:
    """Counts what a run has done; draws it, and appends every unit to `events.jsonl`."""

    def __init__(self, terminal: TextIO, events: Path, *, tokens: int, done_tokens: int) -> None:
        """Start the clock.

        Args:
            terminal: where to draw.
            events: the file of events, one JSON object a line.
            tokens: in the whole plan.
            done_tokens: of these, finished by earlier runs.
        """
        self.samples = self.tokens = self.bytes = self.rejected = 0
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
        self._task: TaskID = self._bar.add_task(
            "extract", total=tokens, completed=done_tokens, figures="loading the target"
        )
        self._events = events.open("a", buffering=1)

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

    def unit_done(self, report: UnitReport) -> None:
        """Count a committed unit."""
        self.samples += report.samples
        self.tokens += report.rows
        self.bytes += report.bytes
        self.rejected += len(report.rejected)
        self.event(
            "unit",
            unit=report.unit,
            samples=report.samples,
            tokens=report.rows,
            rejected=len(report.rejected),
            bytes=report.bytes,
            seconds=round(self.seconds, 3),
        )
        figures = f"{self.samples:,} samples · {self.tokens:,} tokens · {self.rate:,.0f} tok/s · {decimal(self.bytes)}"
        rejected = f" · {self.rejected:,} rejected" if self.rejected else ""
        self._bar.update(self._task, advance=report.rows, figures=figures + rejected)

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        self.event("end", completed=error is None, error=str(error) if error else None)
        self._events.close()


def summary(folder: Path, manifest: Mapping[str, Any], reasons: Counter[str], rate: float | None) -> Table:
    """The table that closes a run.

    Args:
        folder: the store.
        manifest: its manifest, complete.
        reasons: how many samples were rejected for which kind of reason.
        rate: tokens a second, if this run extracted any.
    """
    counts, layers = manifest["counts"], manifest["layer_ids"]
    table = Table(title=f"store {folder}", show_header=False, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    shape = f"[{counts['rows']:,}, {len(layers['output'])}, {manifest['hidden_size']}] {manifest['dtype']}"
    rows = {
        "samples": f"{counts['captured']:,} captured + {counts['rejected']:,} rejected = {counts['input']:,}",
        **{f"  {reason}": f"{count:,}" for reason, count in reasons.most_common()},
        "hidden states": shape,
        "trained tokens": f"{counts['trained_tokens']:,} of {counts['rows']:,}",
        "layers": f"outputs {_listed(layers['output'])}, which serving calls inputs {_listed(layers['input'])}",
        "on disk": f"{decimal(counts['shard_bytes'])} in {counts['units']:,} units",
        **({"rate": f"{rate:,.0f} tok/s"} if rate else {}),
        "store digest": manifest["store_digest"],
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _listed(ids: list[int]) -> str:
    return " ".join(str(layer) for layer in ids)
