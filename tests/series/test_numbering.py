"""The two numberings: the state after layer k is what vLLM itself calls auxiliary layer k+1."""

from __future__ import annotations

import torch

from pipeline.extract.layers import default_layer_ids, to_input_numbering
from tests.engines import LAYERS, random_samples

CAPTURED = LAYERS[:2]  # the last layer's state is after every layer, vLLM has no auxiliary layer for it


def record_vllms_own(worker) -> None:
    """Make the worker's model collect auxiliary states by its own means, as it does when a draft is served."""
    decoder = worker.model_runner.model.model
    decoder.aux_hidden_state_layers = to_input_numbering(CAPTURED)
    forward = decoder.forward

    def recording(*args, **kwargs):
        hidden_states, auxiliary = forward(*args, **kwargs)
        worker.vllms_own = [state.clone() for state in auxiliary]
        return hidden_states

    decoder.forward = recording


def forget_vllms_own(worker) -> list[torch.Tensor]:
    """Undo it, and hand over what was collected."""
    decoder = worker.model_runner.model.model
    decoder.aux_hidden_state_layers = ()
    del decoder.forward
    return worker.vllms_own


def test_output_k_is_what_vllm_calls_auxiliary_layer_k_plus_1(engine):
    (sample,) = random_samples([50])
    engine.executor.collective_rpc(record_vllms_own)
    (result,) = engine.generate([sample])
    (theirs,) = engine.executor.collective_rpc(forget_vllms_own)
    assert len(theirs) == len(CAPTURED)
    for ours, vllms in zip(result["hidden_states"], theirs, strict=False):
        assert torch.equal(ours, vllms)


def test_the_default_layers_are_those_vllm_serves_by_default(engine):
    def defaults(worker):
        return worker.model_runner.model.get_eagle3_aux_hidden_state_layers()

    (served,) = engine.executor.collective_rpc(defaults)
    *auxiliary, last = default_layer_ids(6)
    # Six layers: inputs 2, 3, 3 by vLLM's formula, which the default moves apart; see `default_layer_ids`.
    assert served == (2, 3, 3)
    assert (to_input_numbering(auxiliary), last) == ((2, 3, 4), 5)
    assert to_input_numbering(default_layer_ids(30)) == (2, 15, 27, 30)
