"""A checkpoint in the two forms in which it is served: its settings and tensors, not yet written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pipeline.errors import ExportError
from pipeline.export.draft import Draft
from pipeline.export.layers import check_layers, sglang_layer_ids
from pipeline.export.public import ARCHITECTURE

SPECULATORS, EAGLE3 = "speculators", "eagle3"
_SERVED_TYPES = ("llama", "qwen3")
_ALSO_IN_PUBLIC = ("initializer_range", "attention_bias", "mlp_bias", "attention_dropout", "use_cache")


@dataclass(frozen=True)
class Form:
    """What one folder of an export holds."""

    name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class TargetFacts:
    """What an export tells about the target, or needs to know of it."""

    name: str
    """portable: a hub's name, or a folder's last part"""
    config: Mapping[str, Any]
    """of its text model"""
    embeddings: torch.Tensor
    """`[vocabulary, hidden]`"""


def speculators_form(draft: Draft, target: TargetFacts, dtype: torch.dtype) -> Form:
    """Form (a): speculators' own, which vLLM reads by `speculators_config`.

    Raises:
        ExportError: vLLM has no such draft.
    """
    check_layers(draft.layer_ids)
    if (kind := draft.layer.get("model_type")) not in _SERVED_TYPES:
        raise ExportError(f"transformer_layer_config.model_type is {kind!r}, and vLLM serves drafts of {_SERVED_TYPES}")
    config = {name: value for name, value in draft.config.items() if name != "auto_map"}
    config["speculators_config"] = config["speculators_config"] | {
        "verifier": config["speculators_config"]["verifier"] | {"name_or_path": target.name}
    }
    # vLLM takes a norm_before_residual that is not there for true, and speculators for false.
    config["norm_before_residual"] = bool(config.get("norm_before_residual", False))
    config["dtype"] = _name(dtype)
    return Form(SPECULATORS, config, _rounded(draft.tensors, dtype))


def eagle3_form(draft: Draft, target: TargetFacts, dtype: torch.dtype) -> Form:
    """Form (b): `LlamaForCausalLMEagle3`, as public checkpoints have it, for SGLang and vLLM.

    Raises:
        ExportError: the draft has something that this form cannot say, and that would be lost.
    """
    check_layers(draft.layer_ids)
    _refuse_what_would_be_lost(draft, target)
    layer, ids, num_layers = draft.layer, list(draft.layer_ids), int(target.config["num_hidden_layers"])
    for_sglang = sglang_layer_ids(ids, num_layers, str(target.config.get("model_type")))
    config = {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        **{name: layer[name] for name in _ALSO_IN_PUBLIC if name in layer},
        **{f"{token}_token_id": target.config.get(f"{token}_token_id") for token in ("bos", "eos", "pad")},
        "draft_vocab_size": draft.draft_vocab_size,
        "eagle_aux_hidden_state_layer_ids": ids,
        "eagle_config": {
            "use_aux_hidden_state": True,
            **({"eagle_aux_hidden_state_layer_ids": for_sglang} if for_sglang else {}),
        },
        "head_dim": layer.get("head_dim") or layer["hidden_size"] // layer["num_attention_heads"],
        "hidden_act": layer["hidden_act"],
        "hidden_size": draft.hidden_size,
        "intermediate_size": layer["intermediate_size"],
        "max_position_embeddings": layer["max_position_embeddings"],
        "num_attention_heads": layer["num_attention_heads"],
        "num_hidden_layers": 1,
        "num_key_value_heads": layer["num_key_value_heads"],
        "rms_norm_eps": layer["rms_norm_eps"],
        **_flat_rope(layer),
        "tie_word_embeddings": False,
        "torch_dtype": _name(dtype),
        "vocab_size": draft.vocab_size,
    }
    tensors = {
        name.replace("layers.0.", "midlayer."): tensor
        for name, tensor in draft.tensors.items()
        if name != "embed_tokens.weight"
    }
    return Form(EAGLE3, config, _rounded(tensors, dtype))


def _refuse_what_would_be_lost(draft: Draft, target: TargetFacts) -> None:
    for name in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"):
        if draft.config.get(name):
            raise ExportError(_lost(f"{name} is set, which SGLang's loader ignores"))
    for name, allowed in {"model_type": "llama", "num_hidden_layers": 1, "hidden_act": "silu"}.items():
        if draft.layer.get(name) != allowed:
            raise ExportError(_lost(f"{name} is {draft.layer.get(name)!r} and this form has only {allowed!r}"))
    for name in ("attention_bias", "mlp_bias", "sliding_window"):
        if draft.layer.get(name):
            raise ExportError(_lost(f"{name} is {draft.layer[name]!r}, which SGLang's loader ignores"))
    if "sliding_attention" in (draft.layer.get("layer_types") or []):
        raise ExportError(_lost("its layer has a sliding window, which SGLang's loader ignores"))
    last = int(target.config["num_hidden_layers"])
    if draft.layer_ids[-1] >= last:
        raise ExportError(_lost(f"eagle_aux_hidden_state_layer_ids has {draft.layer_ids[-1]}, beyond layer {last - 1}"))
    own = draft.tensors.get("embed_tokens.weight")
    if own is not None and not torch.equal(own.float(), target.embeddings.float()):
        raise ExportError(_lost("embed_tokens.weight is not the target's, which SGLang puts in its place"))


def _lost(what: str) -> str:
    return f"this draft cannot be said in the form of public EAGLE-3 checkpoints: {what}; use --format speculators"


def _flat_rope(layer: Mapping[str, Any]) -> dict[str, Any]:
    """`rope_theta` and `rope_scaling`, the form that transformers 4 and 5 both read."""
    rope = dict(layer.get("rope_parameters") or layer.get("rope_scaling") or {})
    theta = rope.pop("rope_theta", layer.get("rope_theta"))
    if theta is None:
        raise ExportError(_lost("it names no rope_theta, or one for each kind of layer"))
    if rope.pop("partial_rotary_factor", 1.0) != 1.0:
        raise ExportError(_lost("partial_rotary_factor is set, which SGLang's loader ignores"))
    return {"rope_theta": theta, "rope_scaling": None if rope.get("rope_type", "default") == "default" else rope}


def _rounded(tensors: Mapping[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    made = dict[str, torch.Tensor]()
    for name, tensor in tensors.items():
        made[name] = (tensor.to(dtype) if tensor.is_floating_point() else tensor).contiguous()
    return made


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
