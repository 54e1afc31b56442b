"""Both engines keep the same contract, and agree."""

from __future__ import annotations

import pytest
import torch

from pipeline.errors import EngineError
from pipeline.extract.engines.protocol import EngineOptions, start_engine
from pipeline.extract.engines.speculators import _shared_out
from pipeline.extract.target import read_target
from tests.engines import CPU_ENVIRONMENT, by_transformers, random_samples

LAYERS = (1, 2, 5)


def options(target, **changed) -> EngineOptions:
    return EngineOptions(
        **{
            "target": read_target(target),
            "layer_ids": LAYERS,
            "dtype": "float32",
            "max_seq_len": 512,
            "batch_size": 16,
            "token_budget": 2048,
            "tp_size": 1,
            "gpu_memory_utilization": 0.8,
            "trust_remote_code": False,
            "unit_deadline": 600,
        }
        | changed
    )


@pytest.fixture(scope="module", params=["speculators", "reference"])
def engine(request, llama):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CPU_ENVIRONMENT.items():
            patch.setenv(name, value)
        made = start_engine(request.param, options(llama))
        yield made
        made.close()
        made.close()  # a second call does nothing


@pytest.fixture(scope="module")
def truth(llama):
    return by_transformers(llama, LAYERS)


def test_states_are_rows_by_layers_by_hidden_on_the_cpu(engine):
    for ids, states in zip(samples := random_samples([3, 1, 200]), engine.extract(samples), strict=True):
        assert states.shape == (len(ids), len(LAYERS), 128)
        assert (states.dtype, states.device.type, states.is_contiguous()) == (torch.float32, "cpu", True)


def test_states_are_those_that_transformers_computes(engine, truth):
    samples = random_samples([512, 1, 77, 300, 5])
    for ids, states in zip(samples, engine.extract(samples), strict=True):
        expected = truth(ids)
        assert ((states - expected).norm(dim=(0, 2)) <= 1e-5 * expected.norm(dim=(0, 2))).all()


def test_a_units_states_do_not_depend_on_the_units_before(engine):
    first, second = random_samples([40, 9, 100], seed=1), random_samples([200, 3], seed=2)
    forth = engine.extract(first), engine.extract(second)
    back = engine.extract(second), engine.extract(first)
    for one, two in zip([*forth[0], *forth[1]], [*back[1], *back[0]], strict=True):
        assert torch.equal(one, two)


def test_a_target_that_cannot_be_loaded_is_one_sentence(llama, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in llama.iterdir():
        content = file.read_bytes()
        (broken / file.name).write_bytes(content[:1000] if file.suffix == ".safetensors" else content)
    with pytest.raises(EngineError, match=r"^the engine did not start: "):
        start_engine("speculators", options(broken))


@pytest.mark.parametrize(
    ("cpus", "ranks", "bound"),
    [([0, 1], 2, "0|1"), ([0, 1, 4, 5], 2, "0,1|4,5"), ([3], 2, "3|3"), ([0, 1, 2], 2, "0|1")],
)
def test_ranks_share_out_the_cpus(cpus, ranks, bound):
    assert _shared_out(cpus, ranks) == bound
