"""From the flags that a task was given to those of its stage, and to what the stage reads and writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

Given = dict[str, Any]
"""flag names with underscores to values; None, False or an empty list where not given"""

# Flags that name files and folders. They reach a stage as absolute paths: it may run where the user does not stand.
PATHS = (
    *("input", "model_path", "prepared_data", "output_dir", "store", "draft", "init_from", "draft_config"),
    *("estimate", "evaluation", "train_report"),
)
INPUT_OPTIONS = re.compile(r"(?:,(?:weight|cap|format)=[^,]*)*\Z")
"""of prepare's inputs, as the stage itself reads them (pipeline/prepare/sources/files.py)"""


def to_flags(given: Given) -> list[str]:
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


def absolute(path: str) -> Path:
    """A path from the root, without `..`: a container has it as its own."""
    here = Path(path)
    return here.resolve() if ".." in here.parts else here.absolute()


def with_absolute_paths(given: Given) -> Given:
    """The flags, their paths absolute; a target that is named as a hub names it stays as it is."""
    changed = dict(given)
    for name in PATHS:
        value = given.get(name)
        if isinstance(value, list):
            changed[name] = [_input(item) if name == "input" else _named_or_not(item) for item in value]
        elif value and not (name == "model_path" and is_hub_name(value)):
            changed[name] = str(absolute(value))
    return changed


def folder_of(value: str) -> str:
    """The path in a value of the form NAME=FOLDER, or in one that is a path alone."""
    name, equals, folder = value.partition("=")
    return folder if equals and "/" not in name else value


def input_place(value: str) -> tuple[str, str]:
    """The place in one of prepare's inputs, and the options behind it: PLACE[,weight=W][,cap=N][,format=F]."""
    at = next(match.start() for match in INPUT_OPTIONS.finditer(value))
    return value[:at], value[at:]


def is_hub_data(place: str) -> bool:
    """Whether an input is a data set of the hub: hf:owner/name."""
    return place.startswith("hf:")


def _input(value: str) -> str:
    place, options = input_place(value)
    # An empty one is the stage's to refuse.
    return value if is_hub_data(place) or not place else str(absolute(place)) + options


def _named_or_not(value: str) -> str:
    folder = folder_of(value)
    # An empty one is the stage's to refuse.
    return value.removesuffix(folder) + str(absolute(folder)) if folder else value


def is_given(given: Given, *names: str) -> bool:
    """Whether one of the flags is."""
    return any(given[name] for name in names)


def is_hub_name(model_path: str) -> bool:
    """Whether it can only be a hub's owner/name, as the stage itself decides."""
    is_name = model_path.count("/") == 1 and not model_path.startswith((".", "/", "~"))
    return is_name and not Path(model_path).is_dir()


def is_local(model_path: str | None) -> bool:
    """Whether the target is on this machine."""
    # With no --model-path the store names its target; only one given as a hub's name may need the hub.
    return model_path is None or not is_hub_name(model_path)


def target(given: Given) -> tuple[Path, ...]:
    """The target's folder, where it is one."""
    return paths(given["model_path"]) if is_local(given["model_path"]) else ()


def paths(*values: str | None) -> tuple[Path, ...]:
    """Paths that were given; those that were not are left out."""
    return tuple(Path(value) for value in values if value)


def devices(given: Given, name: str = "tp_size") -> int:
    """How many devices or processes a flag asks for."""
    # A value that is no number is the stage's to refuse.
    value = str(given.get(name) or "1")
    return max(1, int(value)) if value.isdigit() else 1
