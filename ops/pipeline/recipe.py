"""A recipe: which target, which prompts, and the settings of every stage, in one TOML file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from ops.flags import absolute
from ops.pipeline.errors import MissingInputError, RecipeError
from ops.pipeline.flags import FLAGS, FLOAT, INT, PATH, SWITCH, Settings, checked

HELD_OUT = "held-out"
EVALUATE_EXPORTS = "evaluate-exports"
# Settings of the held-out part: of the stage's own table, but for what its own table says.
HELD_OUT_STAGES = ("regenerate", "prepare", "extract")
_SHAPE = ("layers", "hidden-size", "vocab-size", "intermediate-size", "heads", "kv-heads", "head-dim")
FACTS = dict.fromkeys((*_SHAPE, "kv-lora-rank", "rope-head-dim", "weight-bytes"), INT)
"""what the estimates need to know of a target; its config.json says it too, where it is there"""
SIZES = {"samples": INT, "mean-tokens": FLOAT, "tokens-per-second": FLOAT}
"""how much data is planned, for the estimates"""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A recipe as read and checked."""

    name: str
    sha256: str
    """of the file"""
    model_path: Path | None
    """the target's folder; None is the demo target"""
    prompts: tuple[Path, ...]
    held_out_prompts: Path
    """one file, none of `prompts`: what a draft is measured on"""
    stages: Mapping[str, Settings]
    """by stage, those of the held-out part as held-out.STAGE"""
    facts: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)


def read(file: Path) -> Recipe:
    """Read a recipe; paths in it are relative to its own folder.

    Raises:
        MissingInputError: there is no such file.
        RecipeError: it is not TOML, or a key or value means nothing; names key and file.
    """
    try:
        content = file.read_bytes()
        tables = tomlkit.parse(content).unwrap()
    except OSError as error:
        raise MissingInputError(f"cannot read the recipe {file}: {error.strerror}; check --config") from error
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise RecipeError(f"{file} is not TOML: {error}") from error
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise RecipeError(f"{file}: {name} stands outside of a table")
    return _recipe(file, tables, hashlib.sha256(content).hexdigest())


def _recipe(file: Path, tables: dict[str, Any], sha256: str) -> Recipe:
    known = {"target", "data", "sizes", HELD_OUT, EVALUATE_EXPORTS, *FLAGS}
    for name in tables:
        if name not in known:
            raise RecipeError(f"{file}: unknown table [{name}]; there are {', '.join(sorted(known))}")
    about_target = {**FACTS, "model-path": PATH, "trust-remote-code": SWITCH}
    target = checked(tables.get("target", {}), about_target, f"{file} [target]", file.parent)
    trusted = {"trust-remote-code": True} if target.pop("trust-remote-code", False) else {}
    model_path = target.pop("model-path", None)
    prompts, held_out = _data(file, tables.get("data", {}))
    return Recipe(
        name=file.stem,
        sha256=sha256,
        model_path=Path(model_path) if model_path else None,
        prompts=prompts,
        held_out_prompts=held_out,
        stages={name: _with(trusted, stage, given) for name, stage, given in _stages(file, tables)},
        facts=target,
        sizes=checked(tables.get("sizes", {}), SIZES, f"{file} [sizes]", file.parent),
    )


def _stages(file: Path, tables: dict[str, Any]) -> list[tuple[str, str, Settings]]:
    """Name, stage and settings of every part of a recipe that has settings."""

    def table(name: str, stage: str, value: Any) -> Settings:
        if not isinstance(value, dict):
            raise RecipeError(f"{file}: {name} is no table")
        return checked(value, FLAGS[stage], f"{file} [{name}]", file.parent)

    own = {stage: table(stage, stage, tables.get(stage, {})) for stage in FLAGS}
    held_out = tables.get(HELD_OUT, {})
    for name in held_out:
        if name not in HELD_OUT_STAGES:
            raise RecipeError(f"{file} [{HELD_OUT}]: unknown table {name}; there are {', '.join(HELD_OUT_STAGES)}")
    parts = [(stage, stage, settings) for stage, settings in own.items()]
    for stage in HELD_OUT_STAGES:
        name = f"{HELD_OUT}.{stage}"
        parts.append((name, stage, own[stage] | table(name, stage, held_out.get(stage, {}))))
    exports = table(EVALUATE_EXPORTS, "evaluate", tables.get(EVALUATE_EXPORTS, {}))
    return [*parts, (EVALUATE_EXPORTS, "evaluate", own["evaluate"] | exports)]


def _with(trusted: Settings, stage: str, given: Settings) -> Settings:
    return (trusted if "trust-remote-code" in FLAGS[stage] else {}) | given


def _data(file: Path, table: dict[str, Any]) -> tuple[tuple[Path, ...], Path]:
    for name in table:
        if name not in {"prompts", "held-out-prompts"}:
            raise RecipeError(f"{file} [data]: unknown key {name}; there are prompts, held-out-prompts")
    prompts, held_out = table.get("prompts"), table.get("held-out-prompts")
    if not isinstance(prompts, list) or not prompts or not all(isinstance(item, str) for item in prompts):
        raise RecipeError(f"{file} [data]: prompts must be a list of files")
    if not isinstance(held_out, str) or not held_out:
        raise RecipeError(f"{file} [data]: held-out-prompts must be the name of a file")
    paths = tuple(absolute(str(file.parent / item)) for item in (*prompts, held_out))
    if paths[-1] in paths[:-1]:
        raise RecipeError(f"{file} [data]: {held_out} is in prompts too, so it is not held out; name another file")
    return paths[:-1], paths[-1]
