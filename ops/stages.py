"""The stage commands: which environment, and which flags; without flags about data or target, the demo."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ops import demo
from ops.local import ensure
from ops.stack.model import STACKS, load
from ops.stage import become, become_stage

EXTRACT = "extract"


def extract(given: dict[str, Any]) -> None:
    """Become the extract stage with the flags that were given.

    Args:
        given: flag names with underscores to values; None or False where not given.
    """
    environment = ensure(load(STACKS / EXTRACT))
    flags = to_flags(given)
    if _about_data(given, "model_path", "prepared_data", "output_dir"):
        become_stage(environment, "extract", flags, offline=_is_local(given["model_path"]))
    prepared = demo.prepare(environment, [])
    where = ["--prepared-data", str(prepared), "--output-dir", str(demo.STORE)]
    become_stage(environment, "extract", ["--model-path", str(demo.ensure_target(environment)), *where, *flags])


def prepare(given: dict[str, Any]) -> None:
    """Become the prepare stage with the flags that were given; see `extract`."""
    environment = ensure(load(STACKS / EXTRACT))
    flags = to_flags(given)
    if _about_data(given, "input", "model_path", "output_dir"):
        become_stage(environment, "prepare", flags, offline=_is_local(given["model_path"]))
    demo.prepare(environment, flags)


def verify(store: str, given: dict[str, Any]) -> None:
    """Become the verify stage.

    Args:
        store: the folder to check.
        given: see `extract`.
    """
    environment = ensure(load(STACKS / EXTRACT))
    arguments = [store, *to_flags(given)]
    become_stage(environment, "verify", arguments, offline=_is_local(given["model_path"]))


def bench(module: str) -> None:
    """Become a benchmark, run on the demo.

    Args:
        module: the benchmark's module; it takes --model-path and --prepared-data.
    """
    environment = ensure(load(STACKS / EXTRACT))
    prepared = demo.prepare(environment, [])
    where = ["--model-path", str(demo.ensure_target(environment)), "--prepared-data", str(prepared)]
    become([str(environment / "bin" / "python"), "-m", module, *where], offline=True)


def compare(one: str, two: str) -> None:
    """Become the comparison of two stores."""
    environment = ensure(load(STACKS / EXTRACT))
    become([str(environment / "bin" / "python"), "-m", "bench.compare", one, two], offline=True)


def to_flags(given: dict[str, Any]) -> list[str]:
    """Flags of a stage from those given to a task: only what was given, a list of layers as separate values."""
    flags: list[str] = []
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or value is False or value == []:
            continue
        if value is True:
            flags.append(flag)
        elif name == "layer_ids":
            flags += [flag, *re.split(r"[\s,]+", value.strip(" ,"))]
        else:
            # With '=' a value that starts with a dash stays a value.
            flags += [f"{flag}={item}" for item in (value if isinstance(value, list) else [value])]
    return flags


def _about_data(given: dict[str, Any], *names: str) -> bool:
    return any(given[name] for name in names)


def _is_local(model_path: str | None) -> bool:
    # With no --model-path the store names its target; only one given as a hub's name may need the hub.
    return model_path is None or Path(model_path).is_dir()
