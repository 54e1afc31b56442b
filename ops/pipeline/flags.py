"""The flags that a recipe may set, stage by stage, and how their values reach a stage.

A table rather than the stages' own parsers: the host side has none of their packages. A test holds it against the
flags of the commands. Flags that name a stage's input or output are the pipeline's to set and not here.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ops.flags import absolute
from ops.pipeline.errors import RecipeError

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
_OF_KIND = {
    INT: "tp-size batch-size max-seq-len limit seed max-new-tokens max-model-len token-budget unit-deadline top-k "
    "num-speculative-tokens draft-vocab-size draft-layers epochs max-steps batch-tokens ttt-steps nproc "
    "checkpoint-steps keep log-every min-trained-tokens",
    FLOAT: "temperature top-p gpu-memory-utilization learning-rate weight-decay validation-share warmup-share "
    "ttt-warmup-share ttt-decay checkpoint-minutes state-noise",
    TEXT: "dtype unfinished over-long engine storage loss attention optimizer schedule start loggers verifier-name "
    "truncate train-on special-tokens day",
    SWITCH: "trust-remote-code norm-before-fc norm-output train-lm-head",
    INTS: "layer-ids",
    PATH: "init-from draft-config",
}
KINDS: Mapping[str, str] = {name: kind for kind, names in _OF_KIND.items() for name in names.split()}
"""what a flag's value is, the same in every stage that has the flag"""

_ENGINE = "tp-size dtype gpu-memory-utilization trust-remote-code"
_NAMES = {
    "regenerate": f"{_ENGINE} temperature top-p top-k seed max-new-tokens unfinished max-model-len batch-size limit",
    "prepare": "max-seq-len truncate train-on min-trained-tokens special-tokens day trust-remote-code",
    "extract": f"{_ENGINE} batch-size max-seq-len layer-ids token-budget over-long engine storage unit-deadline",
    "train": "init-from draft-config draft-layers draft-vocab-size norm-before-fc norm-output train-lm-head "
    "state-noise validation-share seed epochs max-steps batch-tokens learning-rate weight-decay optimizer schedule "
    "warmup-share "
    "ttt-steps ttt-warmup-share start ttt-decay loss attention dtype nproc checkpoint-steps checkpoint-minutes keep "
    "log-every loggers",
    "estimate": "num-speculative-tokens",
    "evaluate": "num-speculative-tokens max-new-tokens limit batch-size dtype tp-size trust-remote-code",
    "export": "dtype verifier-name",
}
FLAGS: Mapping[str, Mapping[str, str]] = {
    stage: {name: KINDS[name] for name in names.split()} for stage, names in _NAMES.items()
}
"""by stage, the flags a recipe may set and what their values are"""


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
