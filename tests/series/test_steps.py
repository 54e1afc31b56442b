"""The generator's parts can be driven one by one, by whoever takes the states out of the worker another way."""

from __future__ import annotations

import pytest

from tests.engines import generator, random_samples, worst_error

BOUND = 1e-5


@pytest.fixture(scope="module")
def counting(llama):
    with generator(llama, worker_extension_cls="tests.series.counting_worker.CountingExtension") as made:
        yield made


def test_the_worker_can_be_given_an_extension_that_keeps_states_where_they_are_made(counting):
    samples = random_samples([40, 7, 120])
    requests = counting.add_requests(samples)
    counting.prefill()
    captured = counting.executor.collective_rpc("rows_seen", unique_reply_rank=0)
    assert captured == dict(zip(requests, [40, 7, 120], strict=True))


def fail_once_after_the_first_captured_layer(worker) -> None:
    """Runs in the worker: the next forward pass fails in layer 3, when the states after layers 1 and 2 are captured."""

    def fail(layer, args):
        hook.remove()
        raise RuntimeError("layer 3 failed")

    hook = worker.model_runner.model.model.layers[3].register_forward_pre_hook(fail)


def test_after_a_forward_pass_that_failed_the_engine_goes_on_with_other_samples(llama, llama_states):
    failing, later = random_samples([50, 70])
    with generator(llama) as engine:
        engine.executor.collective_rpc(fail_once_after_the_first_captured_layer)
        with pytest.raises(RuntimeError, match="layer 3 failed"):
            engine.generate([failing])
        assert worst_error(engine.generate([later]), [llama_states(later)]) < BOUND
