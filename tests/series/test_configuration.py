"""What the patched generator asks of vLLM."""

from __future__ import annotations

import pytest
import torch
from vllm.config import VllmConfig
from vllm.platforms import current_platform

from tests.engines import generator, random_samples, worst_error

MODULE = "speculators.data_generation.vllm_hidden_states_generator"


class StartedError(Exception):
    """Raised in place of starting workers, with the configuration they would get."""


@pytest.fixture
def asked_of_vllm(monkeypatch, llama):
    """The VllmConfig that a generator with these options would start its workers with."""

    def start(vllm_config: VllmConfig) -> None:
        raise StartedError(vllm_config)

    def configuration(**options) -> VllmConfig:
        monkeypatch.setattr(f"{MODULE}.MultiprocExecutor", start)
        with pytest.raises(StartedError) as started, generator(llama, **options):
            pass
        return started.value.args[0]

    return configuration


def test_the_engine_starts_and_captures(engine, llama_states):
    samples = random_samples([7, 19])
    assert worst_error(engine.generate(samples), [llama_states(sample) for sample in samples]) < 1e-5


def test_scheduling_is_synchronous_whatever_the_platform_prefers(monkeypatch, asked_of_vllm):
    # The CPU platform overrules what the configuration asks for; other platforms do not.
    original = type(current_platform).check_and_update_config

    def keep_what_was_asked(config: VllmConfig) -> None:
        asked = config.scheduler_config.async_scheduling
        original(config)
        config.scheduler_config.async_scheduling = asked

    monkeypatch.setattr(type(current_platform), "check_and_update_config", staticmethod(keep_what_was_asked))
    assert asked_of_vllm().scheduler_config.async_scheduling is False


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_the_dtype_is_the_one_asked_for(asked_of_vllm, name):
    assert asked_of_vllm(dtype=name).model_config.dtype is getattr(torch, name)


def test_the_batch_limits_are_the_ones_asked_for(asked_of_vllm):
    limits = asked_of_vllm(max_num_batched_tokens=4096, max_num_seqs=7).scheduler_config
    assert (limits.max_num_batched_tokens, limits.max_num_seqs) == (4096, 7)


def test_the_batch_limits_have_defaults(asked_of_vllm):
    limits = asked_of_vllm().scheduler_config
    assert (limits.max_num_batched_tokens, limits.max_num_seqs) == (8192, 32)


@pytest.mark.parametrize("layers", [[2, 1], [1, 1, 5]])
def test_unordered_and_repeated_layer_ids_are_refused(llama, layers):
    with pytest.raises(ValueError, match="must strictly increase"), generator(llama, layer_ids=layers):
        pass
