"""The flags that `./eyas STAGE` hands on, held against those that the stage's own --help lists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ops.stack.stages import stages_of
from pipeline.__main__ import STAGES

CHECKOUT = Path(__file__).parents[1]
# What the host side itself takes, and invoke's context.
NOT_THE_STAGES = {"_", "runtime", "gpus"}


def unknown_flags(stack: str) -> dict[str, set[str]]:
    """For each stage of a stack that has a command of its own name, the flags of it that the stage does not know."""
    commands = _commands()
    stages = [name for name in stages_of(stack) if name in STAGES and name in commands]
    assert stages, f"no stage of {stack} has a command"
    return {name: commands[name] - _known(name) for name in stages}


def _commands() -> dict[str, set[str]]:
    # Read and not imported: the stacks have no invoke.
    tree = ast.parse((CHECKOUT / "tasks.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {node.name: set(_flags(node)) for node in functions}


def _flags(function: ast.FunctionDef) -> Iterator[str]:
    for arg in function.args.args:
        # A plain text with no default is positional, and named as each side likes.
        positional = arg in function.args.args[: -len(function.args.defaults)] and ast.unparse(arg.annotation) == "str"
        if arg.arg not in NOT_THE_STAGES and not positional:
            yield arg.arg.replace("_", "-")


def _known(stage: str) -> set[str]:
    command = [sys.executable, "-m", "pipeline", stage, "--help"]
    told = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--([a-z0-9-]+)", told))
