"""stack.toml as typed objects; anything wrong in it is one StackError naming the key."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from tomlkit.exceptions import TOMLKitError

from ops.errors import StackError
from ops.paths import CHECKOUT

STACKS = CHECKOUT / "stacks"
ACCELERATORS = ("cpu", "cuda")


@dataclass(frozen=True, kw_only=True)
class VllmPin:
    """vLLM's wheel: a release by version and sha256, or a nightly by commit and URL too."""

    version: str
    sha256: str
    commit: str = ""
    url: str = ""

    def requirement(self) -> str:
        """The pin as a requirement line."""
        return f"vllm @ {self.url}#sha256={self.sha256}" if self.url else f"vllm=={self.version}"


@dataclass(frozen=True, kw_only=True)
class SourceBuild:
    """A package that is published as source only and built in the image from its hash-locked sdist."""

    name: str
    version: str
    sha256: str
    requires: tuple[str, ...]
    """what it needs when it runs, stated here so that locking need not run its setup.py"""
    tools: tuple[str, ...]
    """what its build needs"""
    environment: Mapping[str, str]
    """variables of its build"""


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """What a stack is on one kind of hardware."""

    name: str
    python: str
    """version specifier, such as '>=3.10,<3.14'"""
    requirements: tuple[str, ...]
    overrides: tuple[str, ...]
    """requirements that replace what packages ask for themselves"""
    exclude: tuple[str, ...]
    """packages that others ask for and nothing here imports"""
    installed_gib: int
    """disk space the installed environment takes, GiB"""
    base_image: str = ""
    """image, by digest, that the environment is installed in"""
    run_image: str = ""
    """image, by digest, that it runs in, when that is another one"""
    apt_snapshot: str = ""
    """moment of the archive that the image's Debian or Ubuntu packages come from"""
    cuda: str = ""
    vllm: VllmPin | None = None
    build: tuple[SourceBuild, ...] = field(default=())

    def inputs_digest(self) -> str:
        """sha256 over all that the lock is made from; the lock's first line records it."""
        made_from = (self.python, self.requirements, self.overrides, self.exclude, self.vllm, self.build)
        return hashlib.sha256(json.dumps(made_from, default=vars, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Stack:
    """One stack.toml."""

    name: str
    folder: Path
    patches: str = ""
    """name of the series under patches/; empty where nothing is patched"""
    accelerators: Mapping[str, Accelerator]
    content: Mapping[str, Any]
    """the file as plain values, for the stack's digest"""

    def accelerator(self, name: str) -> Accelerator:
        """The accelerator's part.

        Raises:
            StackError: this stack does not run on it.
        """
        if name not in self.accelerators:
            raise StackError(f"stack {self.name} has no [{name}]; it has {', '.join(self.accelerators)}")
        return self.accelerators[name]

    def lock(self, accelerator: str) -> Path:
        """Place of the accelerator's lock."""
        return self.folder / f"{accelerator}.lock"

    @property
    def series(self) -> Path | None:
        """Folder of the patch series, where there is one: patches/ stands beside stacks/."""
        return self.folder.parent.parent / "patches" / self.patches if self.patches else None


def load(folder: Path) -> Stack:
    """Read `folder`/stack.toml.

    Raises:
        StackError: there is none, or it is wrong.
    """
    path = folder / "stack.toml"
    if not path.is_file():
        known = sorted(p.parent.name for p in folder.parent.glob("*/stack.toml"))
        raise StackError(f"no stack {folder.name!r}: {path} is missing; known stacks: {', '.join(known) or 'none'}")
    return parse(path.read_text(encoding="utf-8"), folder)


def parse(text: str, folder: Path) -> Stack:
    """The stack that `text`, the content of `folder`/stack.toml, describes.

    Raises:
        StackError: a key is missing, unknown or has the wrong form.
    """
    where = str(folder / "stack.toml")
    try:
        content = tomlkit.parse(text).unwrap()
        rest = dict(content)
        accelerators = {
            name: _accelerator(name, rest.pop(name), f"{where} [{name}]") for name in ACCELERATORS if name in rest
        }
        stack = Stack(folder=folder, accelerators=accelerators, content=content, **_strings(rest, where))
    except TOMLKitError as error:
        raise StackError(f"{where} is not TOML: {error}") from error
    except TypeError as error:
        # A missing or unknown key reaches a dataclass as a missing or unknown argument.
        raise StackError(f"{where}: {str(error).split('__init__() ')[-1].replace('argument', 'key')}") from error
    if not accelerators:
        raise StackError(f"{where}: neither [cpu] nor [cuda]; a stack runs on at least one")
    if stack.name != folder.name:
        raise StackError(f"{where}: name is {stack.name!r}, the folder's is {folder.name!r}; make them one")
    return stack


def _accelerator(name: str, table: Any, where: str) -> Accelerator:
    values = {key.replace("-", "_"): value for key, value in _table(table, where).items()}
    for key in ("requirements", "overrides", "exclude"):
        values[key] = _requirements(values.get(key, []), f"{where} {key}")
    if "vllm" in values:
        values["vllm"] = VllmPin(**_strings(_table(values["vllm"], f"{where} vllm"), f"{where} vllm"))
        _check_sha256(values["vllm"].sha256, f"{where} vllm")
        if bool(values["vllm"].commit) != bool(values["vllm"].url):
            raise StackError(f"{where} vllm: a nightly has commit and url, a release neither")
    values["build"] = tuple(_build(item, f"{where} build") for item in values.get("build", []))
    try:
        SpecifierSet(values.get("python", ""))
    except (InvalidSpecifier, AttributeError, TypeError) as error:
        raise StackError(f"{where} python: {values['python']!r} is no version specifier") from error
    if type(values.get("installed_gib")) is not int:
        raise StackError(f"{where} installed-gib: must be a whole number of GiB")
    return Accelerator(name=name, **values)


def _build(table: Any, where: str) -> SourceBuild:
    values = dict(_table(table, where))
    for key in ("requires", "tools"):
        values[key] = _requirements(values.get(key, []), f"{where} {key}")
    values["environment"] = _strings(_table(values.get("environment", {}), where), where)
    _check_sha256(values.get("sha256"), where)
    return SourceBuild(**values)


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise StackError(f"{where}: must be a table")
    return value


def _strings(table: dict[str, Any], where: str) -> dict[str, str]:
    for key, value in table.items():
        if not isinstance(value, str):
            raise StackError(f"{where} {key}: must be a text")
    return table


def _requirements(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise StackError(f"{where}: must be a list of requirements")
    for item in value:
        try:
            Requirement(item)
        except (InvalidRequirement, TypeError, AttributeError) as error:
            raise StackError(f"{where}: {item!r} is no requirement") from error
    return tuple(value)


def _check_sha256(value: Any, where: str) -> None:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise StackError(f"{where} sha256: {value!r} is not 64 lower-case hex digits")
