"""`./eyas pipeline`: reads the recipe, and runs its steps or says what would run."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from ops import demo
from ops.flags import absolute
from ops.paths import CHECKOUT
from ops.pipeline import recipe as recipes
from ops.pipeline.errors import MissingInputError
from ops.pipeline.facts import facts_of
from ops.pipeline.places import Places, Stacks
from ops.pipeline.provenance import PROVENANCE, held, known_digests, read, remembered
from ops.pipeline.recipe import Recipe
from ops.pipeline.running import duration, run_steps
from ops.pipeline.selection import Selection, select
from ops.pipeline.state import State
from ops.pipeline.step import Step
from ops.pipeline.steps import steps_of
from ops.pipeline.table import printed, rows

DEMO = CHECKOUT / "examples" / "recipes" / "demo.toml"


def pipeline(given: dict[str, Any]) -> None:
    """Run a recipe.

    Args:
        given: flags of the task: config, run_dir, start (--from), until, force (a list), dry_run, runtime, gpus.

    Raises:
        UserError: a recipe, an input, the run folder or a runtime; see docs/pipeline.md for the codes.
        invoke.Exit: a stage failed, with its exit code.
    """
    places = Stacks(given["runtime"], given["gpus"])
    recipe = recipes.read(absolute(given["config"]) if given["config"] else DEMO)
    run = absolute(given["run_dir"]) if given["run_dir"] else CHECKOUT / "runs" / recipe.name
    target = recipe.model_path or (
        demo.target_folder() if given["dry_run"] else demo.ensure_target(places.of("target"))
    )
    steps = steps_of(recipe, target, run)
    selection = select(steps, given["start"], given["until"], given["force"])
    facts = facts_of(target, recipe.facts, recipe.name) if recipe.facts or given["dry_run"] else None
    if given["dry_run"]:
        show(selection, len(steps), places, run)
        assert facts  # noqa: S101 - for the type checker: made for a dry run
        print(f"\n{printed(rows(recipe, facts, run))}")
        return
    carry_out(recipe, steps, selection, places, run)


def carry_out(recipe: Recipe, steps: tuple[Step, ...], selection: Selection, places: Places, run: Path) -> None:
    """Run the steps that are wanted and have to run; see `pipeline` for the errors."""
    began = time.monotonic()
    with held(run), remembered(run) as digests:
        state = State(places, digests, read(run))
        about = {"recipe": {"name": recipe.name, "sha256": recipe.sha256}}
        run_steps(steps, selection, state, about)
    last = selection.wanted[-1]
    took = duration(time.monotonic() - began)
    print(f"pipeline {recipe.name}: {last.folder} in {took}; what it came from: {run / PROVENANCE}", file=sys.stderr)


def show(selection: Selection, count: int, places: Places, run: Path) -> None:
    """Print every step's command as it would run, and why it would; nothing is started or written."""
    state = State(places, known_digests(run), read(run))
    pending = ""
    for number, step in enumerate(selection.wanted, len(selection.before) + 1):
        why = _why(step, state, pending, forced=step.name in selection.forced)
        told = f"would run: {why}" if why else f"unchanged{f', if {pending} gives the same' if pending else ''}"
        pending = pending or (step.name if why else "")
        print(f"# [{number}/{count}] {step.name}: {told}")
        print(places.line(step.call))


def _why(step: Step, state: State, pending: str, *, forced: bool) -> str:
    try:
        return state.verdict(step, state.made_from(step), forced=forced).why
    except MissingInputError as error:
        return f"after {pending}" if pending else f"once it can: {error}"
