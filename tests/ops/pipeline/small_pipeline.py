"""A recipe with a target and prompts of a few bytes, and a runtime that runs small stages as real processes.

Run as a program: FOLDER STEP runs the pipeline of a bench that was made before; that step hangs half-way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ops.paths import CHECKOUT
from ops.pipeline import command, recipe, state
from ops.pipeline.places import Identity
from ops.pipeline.selection import select
from ops.pipeline.step import Step
from ops.pipeline.steps import steps_of
from ops.stage import StageCall, wait_for

RECIPE = """
[target]
model-path = "target"
layers = 4
[data]
prompts = ["prompts.jsonl"]
held-out-prompts = "held-out.jsonl"
[regenerate]
temperature = 0.7
[prepare]
max-seq-len = 512
[train]
learning-rate = 0.001
epochs = 2
[held-out.regenerate]
temperature = 0.0
[evaluate-exports]
limit = 4
"""
CONFIG = '{"num_hidden_layers": 4, "hidden_size": 8, "vocab_size": 32, "num_attention_heads": 2}'
STEPS = (
    *("regenerate", "prepare", "extract", "train", "held-out-regenerate", "held-out-prepare", "held-out-extract"),
    *("estimate", "evaluate", "export", "evaluate-exports"),
)


@dataclass
class SmallPlaces:
    """A runtime: every stage is a process of `small_stages`."""

    stacks: dict[str, str] = field(default_factory=dict)
    """digests by stage, where a test wants another than the stage's name"""
    variables: dict[str, str] = field(default_factory=dict)
    made_ready: list[list[str]] = field(default_factory=list)

    def identity(self, stage: str) -> Identity:
        return Identity(
            name="small", accelerator="cpu", digest=self.stacks.get(stage, stage), patches=("0001-a.patch",)
        )

    def ready(self, stages: Iterable[str]) -> None:
        self.made_ready.append(list(stages))

    def run(self, call: StageCall) -> int:
        line = [sys.executable, "-m", "tests.ops.pipeline.small_stages", call.stage, *call.arguments]
        return wait_for(line, os.environ | self.variables, CHECKOUT)

    def line(self, call: StageCall) -> str:
        return " ".join(["line:", call.stage, *call.arguments])


class Bench:
    """A recipe in a folder of its own, and what is needed to run it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run_folder = folder, folder / "run"
        self.steps_folder = self.run_folder / "steps"
        self.file, self.diary = folder / "small.toml", folder / "diary"
        self.places = SmallPlaces(variables={"DIARY": str(self.diary)})

    def make(self) -> None:
        """Write the recipe, the target and the prompts."""
        self.file.write_text(RECIPE)
        (self.folder / "target").mkdir()
        (self.folder / "target" / "config.json").write_text(CONFIG)
        (self.folder / "prompts.jsonl").write_text("a prompt\n")
        (self.folder / "held-out.jsonl").write_text("another\n")

    def steps(self) -> tuple[Step, ...]:
        return steps_of(recipe.read(self.file), self.folder / "target", self.run_folder)

    def run(self, *, start: str | None = None, until: str | None = None, force: tuple[str, ...] = ()) -> list[str]:
        """Run the pipeline; what the stages wrote into the diary meanwhile."""
        self.diary.write_text("")
        steps = self.steps()
        selection = select(steps, start, until, force)
        command.carry_out(recipe.read(self.file), steps, selection, self.places, self.run_folder)
        return self.written()

    def written(self) -> list[str]:
        return self.diary.read_text().splitlines()

    def edit(self, old: str, new: str) -> None:
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))

    def with_variables(self, **variables: str) -> None:
        self.places = replace(self.places, variables={"DIARY": str(self.diary), **variables})


def without_code(stage: str) -> str:
    """In the place of `code_digest`: the code of stages that are still to come need not be there."""
    return f"code of {stage}"


if __name__ == "__main__":
    state.code_digest = without_code  # type: ignore[attr-defined]
    hanging = Bench(Path(sys.argv[1]))
    hanging.with_variables(HANG=sys.argv[2])
    hanging.run()
