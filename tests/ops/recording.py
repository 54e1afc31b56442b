"""A runtime that writes down what it is asked to run."""

from __future__ import annotations

from dataclasses import replace

from ops.stage import StageCall


class Recorder:
    """See `ops.stage.Runtime`."""

    name = "local"

    def __init__(self, *_: object) -> None:
        self.calls: list[StageCall] = []

    def run(self, call: StageCall) -> int:
        self.calls.append(call)
        return 0

    def finish(self, call: StageCall) -> None:
        self.calls.append(call)

    def show(self, call: StageCall) -> None:
        self.calls.append(replace(call, stage="shown"))
