"""Each patch for speculators 0.3.0 is needed: the test it names fails when that patch alone is left out of the series.

That the tests pass with the whole series is what the other files of this folder show.
"""

from __future__ import annotations

import pytest

from tests.necessity import LeftOut, check, left_out_of, names_of

SERIES = "speculators-0.3.0"
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
def left_out(tmp_path_factory: pytest.TempPathFactory) -> LeftOut:
    yield from left_out_of(SERIES, tmp_path_factory.mktemp("left-out"))


@pytest.mark.parametrize("name", names_of(SERIES))
def test_a_patchs_test_fails_without_it(left_out: LeftOut, name: str) -> None:
    check(left_out, name, SYMPTOMS)
