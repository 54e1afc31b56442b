"""Samples the engine cannot run are refused before anything is queued."""

from __future__ import annotations

import pytest

from tests.engines import random_samples, worst_error


def test_a_sample_the_engine_cannot_run_is_refused_and_the_engine_goes_on(engine, llama_states):
    (good,) = random_samples([30])
    refused = {
        "sample 1 has 0 tokens": [],
        "sample 1 has 1025 tokens": random_samples([1025])[0],
        r"sample 1 has a token id outside \[0, 127\]": [5, 128],
        r"sample 1 has a token id outside": [-1, 5],
    }
    for message, bad in refused.items():
        with pytest.raises(ValueError, match=message):
            engine.generate([good, bad])
        assert worst_error(engine.generate([good]), [llama_states(good)]) < 1e-5
