"""Each patch for speculators 0.9.0 is needed: the test it names fails when that patch alone is left out."""

from __future__ import annotations

import pytest

from tests.necessity import LeftOut, check, left_out_of, names_of

SERIES = "speculators-0.9.0"
# What torch says, built for CUDA or not, when an accelerator is asked of a machine that has none.
NO_ACCELERATOR = r"Found no NVIDIA driver|[Aa]ccelerator"
SYMPTOMS = {**dict.fromkeys(("0001", "0002", "0003"), NO_ACCELERATOR), "0004": "Epoch 0", "0005": "aten.argmax"}
"""what the failing test must say: the fault that the patch mends, and no other"""


@pytest.fixture(scope="module")
def left_out(tmp_path_factory: pytest.TempPathFactory) -> LeftOut:
    yield from left_out_of(SERIES, tmp_path_factory.mktemp("left-out"))


@pytest.mark.parametrize("name", names_of(SERIES))
def test_a_patchs_test_fails_without_it(left_out: LeftOut, name: str) -> None:
    check(left_out, name, SYMPTOMS)
