"""Which of the steps a command line asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ops.pipeline.errors import RecipeError
from ops.pipeline.step import Step


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The steps to look at, and those to run whatever was done."""

    before: tuple[Step, ...]
    """taken as they are"""
    wanted: tuple[Step, ...]
    start: str
    forced: frozenset[str]


def select(steps: Sequence[Step], start: str | None, until: str | None, forced: Sequence[str]) -> Selection:
    """The steps from one to another.

    Args:
        steps: all of them.
        start: name of the first; the very first when not given.
        until: name of the last; the very last when not given.
        forced: names of steps to run even if nothing has changed.

    Raises:
        RecipeError: no step has that name, or the last stands before the first, or a forced one is not among them.
    """
    names = [step.name for step in steps]
    first = _place(names, "--from", start) if start else 0
    last = _place(names, "--until", until) if until else len(names) - 1
    if last < first:
        raise RecipeError(f"--until {until} comes before --from {start}; the order is {', '.join(names)}")
    for name in forced:
        if not first <= _place(names, "--force", name) <= last:
            raise RecipeError(f"--force {name}: it is not among the steps from {names[first]} until {names[last]}")
    wanted = tuple(steps[first : last + 1])
    return Selection(before=tuple(steps[:first]), wanted=wanted, start=names[first], forced=frozenset(forced))


def _place(names: list[str], flag: str, name: str) -> int:
    if name not in names:
        raise RecipeError(f"{flag} {name}: no such step; there are {', '.join(names)}")
    return names.index(name)
