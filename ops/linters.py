"""What `./eyas lint` runs: names and command lines."""

from __future__ import annotations

from pathlib import Path

from ops.paths import CHECKOUT

HOST_CODE = ("tasks.py", "ops")
SCRIPTS = ("eyas", ".ci/run")
WORKFLOWS = ".github/workflows"


def commands(dev: Path, stack: Path) -> dict[str, list[str]]:
    """Each linter's name and command line, to be run in the checkout.

    Args:
        dev: environment of the tools.
        stack: environment whose packages the pipeline imports.
    """
    tool = dev / "bin"
    mypy = [str(tool / "python"), "-m", "mypy"]
    workflows = [str(path) for path in sorted((CHECKOUT / WORKFLOWS).glob("*.yml"))]
    return {
        "ruff check": [str(tool / "ruff"), "check", "."],
        "ruff format": [str(tool / "ruff"), "format", "--check", "."],
        "mypy ops": [*mypy, *HOST_CODE],
        "mypy pipeline": [*mypy, "--python-executable", str(stack / "bin" / "python"), "pipeline"],
        "import contracts": [str(tool / "lint-imports")],
        "shellcheck": [str(tool / "shellcheck"), *SCRIPTS],
        "workflow schema": [
            *(str(tool / "check-jsonschema"), "--builtin-schema", "vendor.github-workflows"),
            *workflows,
        ],
    }
