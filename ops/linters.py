"""What `./eyas lint` runs: names and command lines."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ops import actionlint
from ops.container.engine import docker_cli
from ops.container.errors import NoEngineError
from ops.errors import PythonError
from ops.paths import CHECKOUT
from ops.stack.stages import EXTRACT, STACK_NAMES, stages_of

HOST_CODE = ("tasks.py", "ops")
WORKFLOWS = ".github/workflows"
COMPOSE = ("docker-compose.yml", "docker-compose.cpu.yml")
# What .env.example leaves open, because no value is right for everybody.
FILLED_IN = {"EYAS_UID": "1000", "EYAS_GID": "1000", "EYAS_MODEL_PATH": "/models/target"}


@dataclass(frozen=True)
class Linter:
    """One linter, to be run in the checkout."""

    name: str
    command: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""
    """why this machine cannot run it; empty where it can"""


def linters(dev: Path, environment: Callable[[str], Path]) -> Iterator[Linter]:
    """Every linter, each made only when its turn comes.

    Args:
        dev: environment of the tools.
        environment: installs the stack of a name and returns its environment, whose packages its stages import.
    """
    tool = dev / "bin"
    mypy = [str(tool / "python"), "-m", "mypy"]
    workflows = [str(path.relative_to(CHECKOUT)) for path in sorted((CHECKOUT / WORKFLOWS).glob("*.yml"))]
    schema = [str(tool / "check-jsonschema"), "--builtin-schema", "vendor.github-workflows"]
    yield Linter("ruff check", [str(tool / "ruff"), "check", "."])
    yield Linter("ruff format", [str(tool / "ruff"), "format", "--check", "."])
    yield Linter("mypy ops", [*mypy, *HOST_CODE])
    for stack in STACK_NAMES:
        if code := pipeline_code(CHECKOUT / "pipeline", stack):
            yield _in_stack(stack, mypy, code, environment)
    yield Linter("import contracts", [str(tool / "lint-imports")])
    yield Linter("shellcheck", [str(tool / "shellcheck"), *scripts(CHECKOUT)])
    yield Linter("hadolint", [str(tool / "hadolint"), "Dockerfile"])
    yield Linter("workflow schema", [*schema, *workflows])
    yield Linter("actionlint", [*actionlint.command(dev), *workflows])
    yield from _compose_files()


def pipeline_code(pipeline: Path, stack: str) -> list[str]:
    """Files and folders of the pipeline that are checked against the packages of a stack.

    What no other stack claims is checked against the extract stack's, which has most of the stages.
    """
    others = {stage for name in STACK_NAMES if name != EXTRACT for stage in stages_of(name)}
    own = set(stages_of(stack)) if stack != EXTRACT else {path.stem for path in pipeline.iterdir()} - others
    found = (path for path in pipeline.iterdir() if path.stem in own and (path.is_dir() or path.suffix == ".py"))
    return sorted(str(path.relative_to(pipeline.parent)) for path in found if path.name != "__pycache__")


def _in_stack(stack: str, mypy: Sequence[str], code: Sequence[str], environment: Callable[[str], Path]) -> Linter:
    name = f"mypy pipeline in {stack}"
    try:
        python = environment(stack) / "bin" / "python"
    except PythonError as error:
        return Linter(name, [], missing=str(error))
    return Linter(name, [*mypy, "--python-executable", str(python), *code])


def scripts(checkout: Path) -> list[str]:
    """Every shell script of the checkout: those that end in .sh, and those that say so in their first line."""
    places = [checkout / "eyas", *(checkout / ".ci").iterdir(), *(checkout / "ops").rglob("*.sh")]
    return sorted(str(path.relative_to(checkout)) for path in places if path.suffix == ".sh" or _is_shell(path))


def _is_shell(path: Path) -> bool:
    with path.open("rb") as file:
        return file.readline().strip() in {b"#!/bin/sh", b"#!/usr/bin/env bash"}


def _compose_files() -> Iterator[Linter]:
    try:
        docker, missing = compose_cli(), ""
    except NoEngineError as error:
        docker, missing = [], str(error)
    base, cpu = COMPOSE
    for name, files in ((base, ["-f", base]), (cpu, ["-f", base, "-f", cpu])):
        # Profiles too: a service outside of them is checked, one inside is not.
        command = [*docker, "compose", "--env-file", ".env.example", "--profile", "*", *files, "config", "--quiet"]
        yield Linter(f"compose config {name}", command, {**FILLED_IN, "COMPOSE_FILE": ""}, missing)


def compose_cli() -> list[str]:
    """The docker command line that has compose.

    Raises:
        NoEngineError: there is none.
    """
    docker = docker_cli()
    if subprocess.run([*docker, "compose", "version"], capture_output=True, check=False).returncode:
        raise NoEngineError(f"{docker[0]} has no compose: install docker-compose-plugin")
    return docker


def run(linter: Linter) -> bool:
    """Run a linter, its output shown; whether it found nothing."""
    return not subprocess.run(linter.command, cwd=CHECKOUT, env=os.environ | linter.variables, check=False).returncode
