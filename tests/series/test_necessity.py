"""Each patch is needed: the test it names fails when that patch alone is left out of the series.

That the tests pass with the whole series is what the other files of this folder show.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import speculators

from ops.patches.series import load
from ops.patches.without import without

CHECKOUT = Path(__file__).parents[2]
SERIES = CHECKOUT / "patches" / "speculators-0.3.0"
PATCHES = [patch.name for patch in load(SERIES).patches]
PYTEST_IN_STACK = CHECKOUT / "ops" / "pytest_in_stack.py"


@pytest.fixture(scope="module")
def left_out(tmp_path_factory):
    """For each patch the outcome of its test without it, two running at a time: most of each is starting an engine."""
    folder = tmp_path_factory.mktemp("left-out")
    with ThreadPoolExecutor(max_workers=2) as pool:
        outcomes = {patch.name: pool.submit(run_without, patch, folder) for patch in load(SERIES).patches}
        yield outcomes
        for outcome in outcomes.values():
            outcome.cancel()


@pytest.mark.parametrize("name", PATCHES)
def test_a_patchs_test_fails_without_it(left_out: dict[str, Future], name: str):
    done = left_out[name].result()
    # 1 and a line that counts one failure: the test ran and failed, it was not missing or broken by itself.
    assert done.returncode == 1, done.stdout[-3000:]
    assert re.search(r"^=+ .*[1-9]\d* failed", done.stdout, re.MULTILINE), done.stdout[-3000:]


def run_without(patch, folder: Path) -> subprocess.CompletedProcess[str]:
    upstream = Path(speculators.__file__).parents[1]
    overlay = without(SERIES, upstream, folder / patch.name, patch.name)
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
