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
SYMPTOMS = {
    "0001": r"is_encoder_decoder",
    "0002": r"unexpected keyword argument 'kv_cache_specs'",
    "0003": r"missing 1 required positional argument: 'block_size'",
    "0004": r"assert len\(request\.block_hashes\) >= num_full_blocks",
    "0005": r"sample_tokens\(\) must be called after execute_model\(\) returns None",
    "0006": r"assert (True|None) is False",
    "0007": r"",
    "0008": r"does not support hidden state extraction",
    "0009": r"'KimiK25ForConditionalGeneration' object has no attribute 'model'",
    "0010": r"nobody may ask for an image's tokens",
    "0011": r"rows were not computed",
    "0012": r"assert \S+ < 1e-05",
    "0013": r"",
    "0014": r"CUDA|NVIDIA driver",
    "0015": r"assert 0\.\d+ < 1e-05",
    "0016": r"",
    "0017": r"unexpected keyword argument 'dtype'",
    "0018": r"unexpected keyword argument 'max_num_(seqs|batched_tokens)'",
    "0019": r"",
    "0020": r"no attribute 'add_requests'",
}
"""what the failing test must say: the fault that the patch mends, and no other"""


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
    # 1: it ran and failed, or its engine did not start; a test that is missing or cannot be imported is 2 to 5.
    assert done.returncode == 1, done.stdout[-3000:]
    assert re.search(SYMPTOMS[name[:4]], done.stdout), f"it failed, but not as it should: {done.stdout[-3000:]}"


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
