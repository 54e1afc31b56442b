"""The flags that a recipe may set, stage by stage, and how their values reach a stage.

A table rather than the stages' own parsers: the host side has none of their packages. A test holds it against the
flags of the commands. Flags that name a stage's input or output are the pipeline's to set and not here.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ops.pipeline.errors import RecipeError
from ops.stages import absolute

Settings = dict[str, Any]
"""flags without their dashes in front, to values; paths are absolute"""

INT, FLOAT, TEXT, SWITCH, INTS, PATH = (
    "whole number",
    "number",
    "text",
    "true or false",
    "list of whole numbers",
    "path",
)
_ENGINE = {"tp-size": INT, "dtype": TEXT, "gpu-memory-utilization": FLOAT, "trust-remote-code": SWITCH}
_SAMPLING = {"temperature": FLOAT, "top-p": FLOAT, "top-k": INT, "seed": INT, "max-new-tokens": INT}
_TRAIN_SIZES = {"draft-vocab-size": INT, "epochs": INT, "batch-tokens": INT, "ttt-steps": INT, "warmup": FLOAT}
_TRAIN_CHOICES = {"loss": TEXT, "attention": TEXT, "optimizer": TEXT, "schedule": TEXT, "dtype": TEXT, "loggers": TEXT}
_TRAIN_RUN = {"seed": INT, "num-workers": INT, "nproc": INT, "checkpoint-steps": INT, "checkpoint-minutes": FLOAT}

FLAGS: Mapping[str, Mapping[str, str]] = {
    "regenerate": {**_ENGINE, **_SAMPLING, "max-model-len": INT, "batch-size": INT, "limit": INT},
    "prepare": {"max-seq-len": INT, "trust-remote-code": SWITCH},
    "extract": {
        **_ENGINE,
        **{"batch-size": INT, "max-seq-len": INT, "layer-ids": INTS, "token-budget": INT, "unit-deadline": INT},
        **{"over-long": TEXT, "engine": TEXT, "storage": TEXT},
    },
    "train": {
        **_TRAIN_SIZES,
        **_TRAIN_CHOICES,
        **_TRAIN_RUN,
        **{"lr": FLOAT, "validation": FLOAT, "init-from": PATH, "trust-remote-code": SWITCH},
    },
    "estimate": {"num-speculative-tokens": INT},
    "evaluate": {
        **{"num-speculative-tokens": INT, "max-new-tokens": INT, "limit": INT, "dtype": TEXT, "tp-size": INT},
        "trust-remote-code": SWITCH,
    },
    "export": {"dtype": TEXT, "verifier-name": TEXT},
}


def checked(table: Mapping[str, Any], kinds: Mapping[str, str], where: str, folder: Path) -> Settings:
    """A table of a recipe with its values checked.

    Args:
        table: keys and values as read.
        kinds: the keys there may be, and what their values are.
        where: the table's place, for messages.
        folder: what paths are relative to.

    Raises:
        RecipeError: an unknown key, or a value of another kind.
    """
    settings: Settings = {}
    for key, value in table.items():
        if key not in kinds:
            raise RecipeError(f"{where}: unknown key {key}{_meant(key, kinds)}")
        if not _is(kinds[key], value):
            raise RecipeError(f"{where}: {key} = {value!r} is not a {kinds[key]}")
        settings[key] = str(absolute(str(folder / value))) if kinds[key] == PATH else value
    return settings


def words(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings as flags on a command line, in their order."""
    line: list[str] = []
    for name, value in settings.items():
        if value is True:
            line.append(f"--{name}")
        elif isinstance(value, list):
            line += [f"--{name}", *map(str, value)]
        elif value is not False:
            # With '=' a value that starts with a dash stays a value.
            line.append(f"--{name}={value}")
    return tuple(line)


def _meant(key: str, kinds: Mapping[str, str]) -> str:
    close = difflib.get_close_matches(key.replace("_", "-"), kinds, n=1)
    return f"; {close[0]} is meant?" if close else f"; there are {', '.join(sorted(kinds))}"


def _is(kind: str, value: object) -> bool:
    if kind == INTS:
        return isinstance(value, list) and bool(value) and all(_is(INT, item) for item in value)
    fits = {INT: (int,), FLOAT: (int, float), TEXT: (str,), SWITCH: (bool,), PATH: (str,)}[kind]
    return isinstance(value, fits) and (kind == SWITCH or not isinstance(value, bool))
