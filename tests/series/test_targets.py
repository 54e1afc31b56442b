"""Targets of other shapes than Llama's, and targets on two ranks."""

from __future__ import annotations

import json

import pytest

from tests import tiny_targets
from tests.engines import generator, random_samples, worst_error

MODULE = "speculators.data_generation.vllm_hidden_states_generator"
LENGTHS = [40, 1, 300, 17, 900, 1000, 64]
BOUND = 1e-5


def test_a_deepseek_shaped_target_is_captured(deepseek, deepseek_states):
    samples = random_samples(LENGTHS)
    with generator(deepseek) as engine:
        captured = engine.generate(samples)
        assert worst_error(captured, [deepseek_states(sample) for sample in samples]) < BOUND
        again = engine.generate(samples)
    assert all(
        bool((one == two).all())
        for result, repeated in zip(captured, again, strict=True)
        for one, two in zip(result["hidden_states"], repeated["hidden_states"], strict=True)
    )


@pytest.fixture(scope="module")
def kimi_engine(kimi):
    with generator(kimi) as made:
        yield made


def test_a_kimi_shaped_target_is_captured(kimi_engine, deepseek_states):
    # Its text model has the weights of the DeepSeek-shaped target.
    samples = random_samples(LENGTHS)
    captured = kimi_engine.generate(samples)
    assert worst_error(captured, [deepseek_states(sample) for sample in samples]) < BOUND


def test_a_kimi_shaped_target_needs_no_image_processing(kimi_engine):
    # The stand-in for its image processor raises when asked for the size of an image: the engine did start.
    assert kimi_engine.scheduler.max_num_encoder_input_tokens == 0


@pytest.mark.parametrize("shape", ["llama", "deepseek", "kimi"])
def test_two_ranks_give_the_states_of_one(shape, request):
    states = request.getfixturevalue("llama_states" if shape == "llama" else "deepseek_states")
    samples = random_samples(LENGTHS)
    with generator(request.getfixturevalue(shape), tensor_parallel_size=2) as engine:
        captured = engine.generate(samples)
    assert worst_error(captured, [states(sample) for sample in samples]) < BOUND


def test_a_targets_code_runs_only_when_trusted(tmp_path, monkeypatch):
    folder = tiny_targets.llama(tmp_path / "target", layers=6)
    canary = tmp_path / "code-ran"
    (folder / "canary.py").write_text(
        "from pathlib import Path\nfrom transformers import LlamaConfig\n"
        f"Path({str(canary)!r}).touch()\n\n\nclass CanaryConfig(LlamaConfig):\n    model_type = 'canary'\n"
    )
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "canary", "auto_map": {"AutoConfig": "canary.CanaryConfig"}}
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(f"{MODULE}.MultiprocExecutor", stop)

    with pytest.raises(Exception, match="trust_remote_code"), generator(folder):
        pass
    assert not canary.exists()
    with pytest.raises(StopError), generator(folder, trust_remote_code=True):
        pass
    assert canary.exists()


class StopError(Exception):
    """In place of starting workers."""


def stop(vllm_config: object) -> None:
    raise StopError
