"""Whether store, target and draft fit each other; what is wrong is named with both values.

The last captured layer gives what the draft learns to predict: the target's logits are its head over the final norm of
that state, so it must be the state after the target's last decoder layer, the norm not applied yet. The others are
what the draft reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import FitError
from pipeline.extract.target import Target

AUXILIARY = 3
"""States that an EAGLE-3 draft reads for each token. vLLM 0.32 gives a draft in the speculators format three, whatever
its config lists (model_executor/models/llama_eagle3.py: num_aux_hidden_states)."""


def check_store(store: Path, manifest: Mapping[str, Any], target: Target, model_sha256: str | None) -> None:
    """Refuse a store that this target's draft cannot be trained from.

    Args:
        store: its folder, for messages.
        manifest: its.
        target: the shape its config gives.
        model_sha256: the target's digest; None: not to be compared.

    Raises:
        FitError: names the field and both values.
    """
    if manifest["status"] != "complete":
        raise FitError(f"{store}: status is {manifest['status']}, not complete: run extract again, it goes on")
    where = f"{store} was not made from the target at {target.folder}"
    for name in ("hidden_size", "num_layers", "vocab_size"):
        if manifest[name] != getattr(target, name):
            raise FitError(f"{where}: {name} is {manifest[name]} there, {getattr(target, name)} here")
    there = manifest["digests"]["model"]
    if model_sha256 is not None and there != model_sha256:
        raise FitError(f"{where}: digests.model is {there[:12]}… there, {model_sha256[:12]}… here")
    if manifest["final_norm_applied"]:
        raise FitError(f"{store}: final_norm_applied is true, training applies the final norm itself: extract it again")
    outputs = manifest["layer_ids"]["output"]
    if outputs[-1] != target.num_layers - 1:
        raise FitError(
            f"{store}: layer_ids.output ends with {outputs[-1]}, the target's last layer is {target.num_layers - 1}, "
            "whose state gives what the draft must learn: extract with that layer, too"
        )
    if len(outputs) != AUXILIARY + 1:
        raise FitError(
            f"{store}: layer_ids.output has {len(outputs)} layers, an EAGLE-3 draft reads {AUXILIARY} and learns from "
            f"the last: extract {AUXILIARY + 1}"
        )


def auxiliary_layers(manifest: Mapping[str, Any]) -> list[int]:
    """The layers a draft reads, in input numbering, as its config lists them: all but the last captured one.

    speculators 0.9.0 numbers them as vLLM does (`resolve_target_layer_ids`: 2, n//2 and n-3 by default), and vLLM takes
    the states that enter these layers (interfaces.py, `_maybe_add_hidden_state`); listing the last layer would widen
    the draft's input by a state that serving does not give it.
    """
    return list(manifest["layer_ids"]["input"][:-1])


def check_draft(folder: Path, config: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to begin with a draft of another form.

    Args:
        folder: the draft's, for messages.
        config: its config.json.
        wanted: the config of the draft that is to be trained, as speculators saves it.

    Raises:
        FitError: names the first field that differs, with both values.
    """
    for name in ("speculators_model_type", "eagle_aux_hidden_state_layer_ids", "draft_vocab_size", *_NORMS):
        if config.get(name) != wanted.get(name):
            raise FitError(f"--init-from {folder}: {name} is {config.get(name)} there, {wanted.get(name)} here")
    there, here = config.get("transformer_layer_config") or {}, wanted["transformer_layer_config"]
    for name in _SHAPES:
        if there.get(name) != here.get(name):
            raise FitError(f"--init-from {folder}: {name} is {there.get(name)} there, {here.get(name)} here")


_NORMS = ("norm_before_fc", "norm_output", "norm_before_residual", "fc_norm")
_SHAPES = (
    "model_type",
    "hidden_size",
    "vocab_size",
    "num_hidden_layers",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)
