"""What the tests of a series' necessity share: each patch's own test, run with the package without that patch."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from ops.patches.series import Patch, identity, load
from ops.patches.without import without

CHECKOUT = Path(__file__).parents[1]
PYTEST_IN_STACK = CHECKOUT / "ops" / "pytest_in_stack.py"

LeftOut = Mapping[str, Future["subprocess.CompletedProcess[str]"]]
"""by patch, how its test ended without it"""


def series_of(name: str) -> Path:
    """The folder of a series."""
    return CHECKOUT / "patches" / name


def names_of(series: str) -> list[str]:
    """The patches of a series, in order."""
    return [patch.name for patch in load(series_of(series)).patches]


def left_out_of(series: str, folder: Path) -> Iterator[LeftOut]:
    """For each patch the outcome of its test without it, two running at a time: most of each is starting something.

    Args:
        series: its name; its package is installed in this environment.
        folder: for the packages without a patch, and what their tests write.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        patches = load(series_of(series)).patches
        outcomes = {patch.name: pool.submit(_run_without, series_of(series), patch, folder) for patch in patches}
        yield outcomes
        for outcome in outcomes.values():
            outcome.cancel()


def check(left_out: LeftOut, name: str, symptoms: Mapping[str, str]) -> None:
    """Check that a patch's test failed without it, and of the fault that the patch mends.

    Args:
        left_out: see `left_out_of`.
        name: the patch.
        symptoms: for the number of each patch what the failing test must say, as a regular expression.
    """
    done = left_out[name].result()
    # 1: it ran and failed, or its engine did not start; a test that is missing or cannot be imported is 2 to 5.
    assert done.returncode == 1, done.stdout[-3000:]
    assert re.search(symptoms[name[:4]], done.stdout), f"it failed, but not as it should: {done.stdout[-3000:]}"


def _run_without(series: Path, patch: Patch, folder: Path) -> subprocess.CompletedProcess[str]:
    package, _ = identity(series)
    overlay = without(series, _site_packages(package), folder / patch.name, patch.name)
    tools = str(Path(pytest.__file__).parents[1])
    # -rf alone leaves out tracebacks' noise; one failing test of several in the node is enough.
    arguments = [patch.header.test, "-x", "-p", "no:cacheprovider", f"--basetemp={folder / (patch.name + '-tmp')}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(overlay), str(CHECKOUT)])}
    return subprocess.run(
        [sys.executable, str(PYTEST_IN_STACK), tools, *arguments],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def _site_packages(package: str) -> Path:
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin, f"{package} is not installed here"
    return Path(found.origin).parents[1]
