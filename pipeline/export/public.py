"""What public EAGLE-3 checkpoints have: the names, shapes and settings that their loaders ask for.

Read in the EAGLE repository (`eagle/model/cnets.py`), SGLang (`models/llama_eagle3.py`), vLLM 0.32
(`models/llama_eagle3.py`) and SpecForge's configurations; docs/export.md names them, with the checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from pipeline.errors import ExportError

ARCHITECTURE = "LlamaForCausalLMEagle3"

TENSORS: Mapping[str, tuple[str, ...]] = {
    "fc.weight": ("hidden", "3 * hidden"),
    "midlayer.input_layernorm.weight": ("hidden",),
    "midlayer.hidden_norm.weight": ("hidden",),
    "midlayer.self_attn.q_proj.weight": ("heads * head", "2 * hidden"),
    "midlayer.self_attn.k_proj.weight": ("kv heads * head", "2 * hidden"),
    "midlayer.self_attn.v_proj.weight": ("kv heads * head", "2 * hidden"),
    "midlayer.self_attn.o_proj.weight": ("hidden", "heads * head"),
    "midlayer.post_attention_layernorm.weight": ("hidden",),
    "midlayer.mlp.gate_proj.weight": ("intermediate", "hidden"),
    "midlayer.mlp.up_proj.weight": ("intermediate", "hidden"),
    "midlayer.mlp.down_proj.weight": ("hidden", "intermediate"),
    "norm.weight": ("hidden",),
    "lm_head.weight": ("draft vocabulary", "hidden"),
    "d2t": ("draft vocabulary",),
    "t2d": ("vocabulary",),
}
"""Every tensor and its shape. The embeddings are the target's. A draft of the whole vocabulary has no d2t and t2d: vLLM
makes no place for them then."""

VOCABULARY_MAP = ("d2t", "t2d")

FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "architectures": list,
    "model_type": str,
    "hidden_size": int,
    "intermediate_size": int,
    "num_hidden_layers": int,
    "num_attention_heads": int,
    "num_key_value_heads": int,
    "head_dim": int,
    "hidden_act": str,
    "rms_norm_eps": float,
    "rope_theta": (int, float),
    "rope_scaling": (dict, type(None)),
    "max_position_embeddings": int,
    "vocab_size": int,
    "draft_vocab_size": int,
    "tie_word_embeddings": bool,
    "torch_dtype": str,
    "eagle_config": dict,
}
"""The settings that the loaders read, and their kind."""

FIXED: Mapping[str, object] = {
    "architectures": [ARCHITECTURE],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
}
"""Settings with one possible value: anything else a loader refuses, or reads and does not do."""


def check_public(config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    """Hold an export against these tables.

    Args:
        config: its config.json.
        tensors: its model.safetensors.

    Raises:
        ExportError: names the tensor or field that no loader would take, or would take for something else.
    """
    for fault in _field_faults(config):
        raise ExportError(f"eagle3/config.json: {fault}")
    for fault in _tensor_faults(config, tensors):
        raise ExportError(f"eagle3/model.safetensors: {fault}")


def _field_faults(config: Mapping[str, Any]) -> Iterator[str]:
    for name, kind in FIELDS.items():
        if name not in config:
            yield f"{name} is missing"
        elif not isinstance(config[name], kind) or (isinstance(config[name], bool) and kind is not bool):
            yield f"{name} is {config[name]!r}, of the wrong kind"
    for name, value in FIXED.items():
        if config.get(name, value) != value:
            yield f"{name} is {config[name]!r}, and this form has only {value!r}"
    for name in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"):
        if config.get(name):
            yield f"{name} is set, which public loaders of this form do not do"


def _tensor_faults(config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Iterator[str]:
    sizes = _sizes(config)
    whole = config["draft_vocab_size"] == config["vocab_size"]
    wanted = {name: shape for name, shape in TENSORS.items() if not (whole and name in VOCABULARY_MAP)}
    yield from (f"{name} is missing" for name in wanted if name not in tensors)
    yield from (f"{name} is not a tensor of this form" for name in tensors if name not in wanted)
    for name in wanted.keys() & tensors.keys():
        shape, found = tuple(sizes[axis] for axis in wanted[name]), tuple(tensors[name].shape)
        if found != shape:
            yield f"{name} is {found} and not {shape} ({', '.join(wanted[name])})"
        dtype = {"d2t": torch.int64, "t2d": torch.bool}.get(name, getattr(torch, str(config["torch_dtype"]), None))
        if tensors[name].dtype != dtype:
            yield f"{name} is {tensors[name].dtype} and not {dtype}"


def _sizes(config: Mapping[str, Any]) -> dict[str, int]:
    hidden, head = config["hidden_size"], config["head_dim"]
    return {
        "hidden": hidden,
        "2 * hidden": 2 * hidden,
        "3 * hidden": 3 * hidden,
        "heads * head": config["num_attention_heads"] * head,
        "kv heads * head": config["num_key_value_heads"] * head,
        "intermediate": config["intermediate_size"],
        "vocabulary": config["vocab_size"],
        "draft vocabulary": config["draft_vocab_size"],
    }
