"""Runs the steps that have to run, in order, and writes down what each was made from and what it made."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import invoke

from ops.pipeline import host
from ops.pipeline.changes import Verdict
from ops.pipeline.errors import MissingInputError
from ops.pipeline.provenance import DONE, STARTED, fingerprint
from ops.pipeline.selection import Selection
from ops.pipeline.state import State, check_there
from ops.pipeline.step import Step

SUPERSEDED = "superseded"


def run_steps(steps: Sequence[Step], selection: Selection, state: State, about: dict[str, Any]) -> None:
    """Run what has to run.

    Args:
        steps: all steps.
        selection: which of them are wanted.
        state: of the run folder.
        about: what the provenance file says of the whole.

    Raises:
        invoke.Exit: a stage failed, with its exit code; the message says which and where its log is.
        UserError: an input is missing (41), a check failed, or a runtime cannot be used.
    """
    check_there(state, selection.before, selection.start)
    names = [step.name for step in steps]
    is_ready = False
    for step in selection.wanted:
        say = _Line(names.index(step.name) + 1, len(names), step.name)
        now = state.made_from(step)
        verdict = state.verdict(step, now, forced=step.name in selection.forced)
        if not verdict.why:
            say("unchanged")
            continue
        if not is_ready:
            later = selection.wanted[selection.wanted.index(step) :]
            state.places.ready(later_step.stage for later_step in later)
            is_ready = True
        _Runner(step, state, names, about, say).run(now, verdict)


class _Line:
    """Prints the lines of a step."""

    def __init__(self, number: int, of: int, name: str) -> None:
        self._start = f"[{number:>{len(str(of))}}/{of}] {name:<20} "

    def __call__(self, text: str) -> None:
        print(self._start + text, file=sys.stderr, flush=True)


class _Runner:
    def __init__(
        self, step: Step, state: State, names: list[str], about: dict[str, Any], say: Callable[[str], None]
    ) -> None:
        self._step, self._state, self._names, self._about, self._say = step, state, names, about, say

    def run(self, now: dict[str, Any], verdict: Verdict) -> None:
        self._say(f"runs: {verdict.why}")
        last = self._state.record.step(self._step.name)
        if verdict.aside:
            self._make_room()
            last = None
        resumed = last is not None and last["status"] == STARTED
        record = self._record(now, resumed=resumed)
        self._put({**record, "status": STARTED})
        began = time.monotonic()
        self._run_stage(began)
        if self._step.check:
            self._step.check(self._step.folder)
        outputs = self._outputs()
        seconds = round(time.monotonic() - began, 1)
        self._put({**record, "status": DONE, "outputs": outputs, "seconds": seconds})
        self._say(f"done in {duration(seconds)}")

    def _record(self, now: dict[str, Any], *, resumed: bool) -> dict[str, Any]:
        stack = self._state.places.identity(self._step.stage)
        return {
            "step": self._step.name,
            "fingerprint": fingerprint(now),
            "made_from": now,
            "stack": {"name": stack.name, "accelerator": stack.accelerator, "patches": list(stack.patches)},
            "revision": host.revision(),
            "host": host.facts(),
            "resumed": resumed,
            "outputs": {},
        }

    def _put(self, record: dict[str, Any]) -> None:
        self._state.record.put(record, self._names, **self._about)

    def _run_stage(self, began: float) -> None:
        code = self._state.places.run(self._step.call)
        if code:
            what = "was interrupted" if code == 130 else f"failed with exit code {code}"
            told = f"{self._step.name} {what} after {duration(time.monotonic() - began)}; {self._where()}"
            raise invoke.Exit(f"eyas: pipeline: {told}; the same command goes on there", code=code)

    def _where(self) -> str:
        logs = [folder for folder in (self._step.folder / "logs", self._step.folder) if folder.is_dir()]
        return f"its log is in {logs[0]}, what it said above" if logs else "what it said is above"

    def _outputs(self) -> dict[str, str | None]:
        outputs = self._state.outputs(self._step)
        gone = sorted(name for name, digest in outputs.items() if digest is None)
        if gone:
            raise MissingInputError(
                f"{self._step.name} ended well, but {', '.join(gone)} is not in {self._step.folder}; run it again"
            )
        return outputs

    def _make_room(self) -> None:
        """Move what is there aside: it was made otherwise, and may be worth keeping."""
        folder = self._step.folder
        if not folder.is_dir() or not any(folder.iterdir()):
            return
        place = free_place(folder.parent / SUPERSEDED, folder.name)
        place.parent.mkdir(exist_ok=True)
        folder.rename(place)
        self._say(f"what was there is kept in {place}; remove it when it is no longer needed")


def free_place(folder: Path, name: str) -> Path:
    """A name in a folder that is not taken."""
    number = 1
    while (folder / f"{name}-{number}").exists():
        number += 1
    return folder / f"{name}-{number}"


def duration(seconds: float) -> str:
    """A time for people."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
