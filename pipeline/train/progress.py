"""The live line of training, and every step as a line of JSON in `logs/events.jsonl`.

Figures come from speculators' trainer, which sends them to the logger `speculators.metrics`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

METRICS = "speculators.metrics"
_PHASES = {"data": "fetch_ms", "forward": "fwd_ms", "backward": "bwd_ms", "optimizer": "opt_ms"}


class TrainProgress(logging.Handler):
    """Draws on a terminal only; writes events always."""

    def __init__(self, terminal: TextIO, events: Path, *, steps: int, ttt_steps: int, shown: bool) -> None:
        """Open the file of events.

        Args:
            terminal: where to draw.
            events: the file, one JSON object a line.
            steps: in the whole run.
            ttt_steps: of the draft.
            shown: draw the line; a log file or a pipe is no place for it.
        """
        super().__init__()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.percentage:>3.0f}% {task.fields[figures]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=Console(file=terminal),
            disable=not shown,
            transient=True,
        )
        self._task: TaskID = self._bar.add_task("train", total=steps, figures="")
        self._ttt_steps = ttt_steps
        self._accepted = ""
        self.tokens, self.seconds = 0.0, 0.0
        self.phases = dict.fromkeys(_PHASES, 0.0)
        events.parent.mkdir(parents=True, exist_ok=True)
        self._events = events.open("a", buffering=1)

    def event(self, name: str, **fields: Any) -> None:
        """Note something in `events.jsonl`, with the time in seconds since the epoch."""
        self._events.write(json.dumps({"time": round(time.time(), 3), "event": name, **fields}) + "\n")

    def emit(self, record: logging.LogRecord) -> None:
        """A step's figures, as the trainer logs them."""
        if isinstance(record.msg, Mapping) and "train" in record.msg:
            self._step(record.msg)

    def begin(self, step: int) -> None:
        """Training begins after so many steps."""
        self._bar.update(self._task, completed=step)

    def validating(self, batches: int) -> None:
        """Validation begins."""
        self._bar.update(self._task, figures=f"validating, {batches:,} batches")

    def validated(self, result: Mapping[str, Any]) -> None:
        """Validation is done."""
        self._accepted = f" · acceptance {result['acceptance_length']:.3f}"
        self.event("validation", **result)

    def saved(self, step: int, seconds: float) -> None:
        """A checkpoint is on the disk."""
        self.event("checkpoint", step=step, seconds=round(seconds, 3))

    def _step(self, message: Mapping[str, Any]) -> None:
        train, profile = message["train"], message["profile"]
        spent = {phase: profile[field] / 1000 for phase, field in _PHASES.items()}
        seconds = profile["step_ms"] / 1000
        self.tokens += profile["tokens_per_s"] * seconds
        self.seconds += seconds
        for phase, value in spent.items():
            self.phases[phase] += value
        names = [f"full_acc_{step}" for step in range(self._ttt_steps)]
        accuracies = [train[name] for name in names if name in train]
        self.event(
            "step",
            step=message["global_step"] + 1,
            epoch=message["epoch"],
            loss=train["loss"],
            accuracies=[round(share, 4) for share in accuracies],
            learning_rate=message["lr"],
            tokens_per_second=round(profile["tokens_per_s"], 1),
            seconds={phase: round(value, 4) for phase, value in spent.items()},
        )
        shares = " ".join(f"{phase} {value / max(seconds, 1e-9):.0%}" for phase, value in spent.items())
        figures = (
            f"loss {train['loss']:.3f} · {' '.join(f'{share:.0%}' for share in accuracies)}{self._accepted} · "
            f"{profile['tokens_per_s']:,.0f} tok/s · {shares}"
        )
        self._bar.update(self._task, completed=message["global_step"] + 1, figures=figures)

    def __enter__(self) -> TrainProgress:
        logging.getLogger(METRICS).addHandler(self)
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        logging.getLogger(METRICS).removeHandler(self)
        self.event("end", completed=error is None, error=str(error) or type(error).__name__ if error else None)
        self._events.close()
