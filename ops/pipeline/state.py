"""What a step would be made from now, and whether that is what it was made from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ops.pipeline.changes import Verdict, judge
from ops.pipeline.code import code_digest
from ops.pipeline.digests import Digests
from ops.pipeline.errors import MissingInputError
from ops.pipeline.places import Places
from ops.pipeline.provenance import Provenance
from ops.pipeline.step import Step

# These stages find out themselves what of an earlier run with other code is still right, by digests of their own.
CHECK_THEMSELVES = ("regenerate", "prepare", "extract")


@dataclass
class State:
    """Looks at the disk, the stacks and the record for a run folder's steps."""

    places: Places
    digests: Digests
    record: Provenance
    _codes: dict[str, str] = field(default_factory=dict)

    def made_from(self, step: Step) -> dict[str, Any]:
        """All that decides what a step makes.

        Raises:
            MissingInputError: something it reads is not there.
        """
        inputs = {name: self.digests.of(source) for name, source in step.inputs.items()}
        for name, digest in inputs.items():
            if digest is None:
                what = {"target": "no model folder with a config.json", "store": "no complete store"}
                source = step.inputs[name]
                raise MissingInputError(
                    f"{step.name}: {what.get(source.kind, 'nothing to read')} at {source.path} ({name}); check the "
                    "recipe's paths, or run the steps before it too"
                )
        if step.stage not in self._codes:
            self._codes[step.stage] = code_digest(step.stage)
        return {
            "stage": step.stage,
            "settings": step.recorded,
            "inputs": inputs,
            "stack": self.places.identity(step.stage).digest,
            "code": self._codes[step.stage],
        }

    def outputs(self, step: Step) -> dict[str, str | None]:
        """Digests of what a step has made, None of what is not there."""
        return {name: self.digests.of(source) for name, source in step.outputs.items()}

    def verdict(self, step: Step, now: dict[str, Any], *, forced: bool) -> Verdict:
        """Whether a step runs; `now` is what `made_from` says."""
        checks_itself = step.stage in CHECK_THEMSELVES
        last = self.record.step(step.name)
        return judge(now, last, self.outputs(step), checks_itself=checks_itself, forced=forced)


def check_there(state: State, steps: Iterable[Step], start: str) -> None:
    """Refuse to begin at a step when one before it has not been done.

    Raises:
        MissingInputError: names the step.
    """
    for step in steps:
        gone = sorted(name for name, digest in state.outputs(step).items() if digest is None)
        if gone:
            raise MissingInputError(
                f"--from {start}: {step.name} has not made {', '.join(gone)}; begin there or before"
            )
