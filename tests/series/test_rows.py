"""Every row is the right one: the traps in which rows get lost or change places, through the real engine."""

from __future__ import annotations

import pytest
import torch

from tests.engines import generator, random_samples, worst_error

MODULE = "speculators.data_generation.vllm_hidden_states_generator"
BOUND = 1e-5


@pytest.fixture
def error_of(engine, llama_states):
    def error(samples):
        return worst_error(engine.generate(samples), [llama_states(sample) for sample in samples])

    return error


@pytest.mark.parametrize("shared", [16, 64, 100])
def test_samples_that_share_leading_tokens_get_all_their_rows(error_of, shared):
    (common,) = random_samples([shared], seed=shared)
    tails = random_samples([100 - shared] * 4, seed=1)
    assert error_of([common + tail for tail in tails]) < BOUND


def test_the_same_sample_twice_gives_the_same_rows(engine):
    (sample,) = random_samples([70])
    first, second, later = engine.generate([sample, sample]) + engine.generate([sample])
    for layer, again, alone in zip(
        first["hidden_states"], second["hidden_states"], later["hidden_states"], strict=True
    ):
        assert torch.equal(layer, again)
        assert (layer - alone).norm() <= BOUND * layer.norm()


def test_two_calls_after_one_another_both_capture(error_of):
    assert error_of(random_samples([9, 33])) < BOUND
    assert error_of(random_samples([21], seed=1)) < BOUND


def test_every_layer_asked_for_comes_back_whole(engine, llama_states):
    (sample,) = random_samples([3])
    (result,) = engine.generate([sample])
    assert len(result["hidden_states"]) == 3
    assert worst_error([result], [llama_states(sample)]) < BOUND


def test_one_token_is_a_sample(error_of):
    assert error_of([[5]]) < BOUND
    assert error_of([[5], *random_samples([40]), [6]]) < BOUND


def test_a_sample_as_long_as_the_engine_takes_gets_all_its_rows(error_of):
    assert error_of(random_samples([1024])) < BOUND


def test_a_batch_over_the_token_budget_gets_all_its_rows(error_of):
    assert error_of(random_samples([900, 900, 900, 900])) < BOUND


def test_more_samples_than_run_at_once_get_all_their_rows(error_of):
    assert error_of(random_samples([11] * 70)) < BOUND


def test_rows_go_to_their_sample_when_the_engine_reorders(error_of):
    # Samples that end leave holes in the engine's batch, which the cut one and new ones fill in another order.
    lengths = [300, 20, 700, 5, 900, 1000, 1, 64, 450, 3] * 4
    assert error_of(random_samples(lengths)) < BOUND


@pytest.fixture(scope="module")
def tight_engine(llama):
    """An engine with a KV cache of 60 blocks, one of which vLLM keeps: 944 tokens."""
    # The generator takes 2 GiB x this; a token has 6 layers x keys and values x 2 heads x 64 x 4 bytes = 6,144.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{MODULE}.CACHE_MEMORY_FRACTION", (60 * 16 + 1) * 6144 / 2**31)
        with generator(llama, max_num_batched_tokens=4096) as made:
            yield made


def test_rows_are_right_when_requests_wait_for_room_in_the_kv_cache(monkeypatch, tight_engine, llama_states):
    samples = random_samples([900, 600, 300, 940, 50])
    steps = watch_schedule(monkeypatch, tight_engine)
    captured = tight_engine.generate(samples)
    assert any(scheduled < 4096 and waiting for scheduled, waiting in steps), "no request had to wait: a wrong test"
    assert worst_error(captured, [llama_states(sample) for sample in samples]) < BOUND


def test_a_sample_the_kv_cache_cannot_hold_is_an_error_and_the_engine_goes_on(tight_engine, llama_states):
    long, short = random_samples([1000, 100])
    with pytest.raises(RuntimeError, match="KV cache of 60 blocks is too small"):
        tight_engine.generate([long])
    assert worst_error(tight_engine.generate([short]), [llama_states(short)]) < BOUND


def test_rows_are_right_when_a_request_is_preempted_and_computed_again(monkeypatch, engine, llama_states):
    # 2,048 tokens a step: the third sample is cut, and preempted between its two chunks.
    samples = random_samples([900, 900, 900, 40])
    scheduler = engine.scheduler

    def preempt(step: int) -> None:
        if step == 1:
            assert [request.num_computed_tokens for request in scheduler.running] == [248]
            scheduler.reset_prefix_cache(reset_running_requests=True)

    steps = watch_schedule(monkeypatch, engine, before=preempt)
    captured = engine.generate(samples)
    assert steps[1][0] == 940, "the preempted sample was not computed from its first token again"
    assert worst_error(captured, [llama_states(sample) for sample in samples]) < BOUND


def watch_schedule(monkeypatch, engine, before=lambda step: None) -> list[tuple[int, int]]:
    """A list that grows by (tokens scheduled, requests waiting) a step; `before` is called with the step's number."""
    steps: list[tuple[int, int]] = []
    schedule = engine.scheduler.schedule

    def watched():
        before(len(steps))
        output = schedule()
        steps.append((output.total_num_scheduled_tokens, len(engine.scheduler.waiting)))
        return output

    monkeypatch.setattr(engine.scheduler, "schedule", watched)
    return steps
