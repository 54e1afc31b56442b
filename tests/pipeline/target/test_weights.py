from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tests.pipeline.target.metadata import field, read
from tests.pipeline.target.quantised import Floats, as_llama_does_not_permute, to_floats

OUTSIDE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
INSIDE = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@cache
def expected(gguf: Path) -> dict[str, Floats]:
    """Every weight of the GGUF file under the name it has in a Llama checkpoint."""
    heads = {"attn_q": "llama.attention.head_count", "attn_k": "llama.attention.head_count_kv"}
    weights = {}
    for tensor in read(gguf).tensors:
        values = to_floats(tensor.data, tensor.tensor_type.name, [int(size) for size in tensor.shape[::-1]])
        if tensor.name in OUTSIDE:
            weights[OUTSIDE[tensor.name]] = values
            continue
        _, layer, part, _ = tensor.name.split(".")
        if part in heads:
            values = as_llama_does_not_permute(values, field(gguf, heads[part]))
        weights[f"model.layers.{layer}.{INSIDE[part]}.weight"] = values
    return weights


def test_every_weight_is_the_quantised_one_rounded_to_bf16(demo_target: Path, gguf: Path) -> None:
    with safe_open(demo_target / "model.safetensors", "pt") as saved:
        weights = expected(gguf)
        assert set(saved.keys()) == set(weights)
        for name, values in weights.items():
            assert torch.equal(saved.get_tensor(name), torch.from_numpy(values).to(torch.bfloat16)), name


def test_bf16_moves_a_weight_by_far_less_than_the_quantisation_did(gguf: Path) -> None:
    weights = expected(gguf)
    for tensor in read(gguf).tensors:
        if tensor.tensor_type.name == "Q4_1" and tensor.name.endswith("ffn_up.weight"):
            values = weights[f"model.layers.{tensor.name.split('.')[1]}.mlp.up_proj.weight"]
            rounded = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
            blocks = values.reshape(-1, 32)
            # Half a level: what rounding to the nearest of 16 levels costs at most; its mean is half of that.
            level = (blocks.max(axis=1) - blocks.min(axis=1)) / 15
            assert np.abs(rounded - values).mean() < 0.05 * (level / 4).mean()


def test_norms_lose_nothing_in_bf16(gguf: Path) -> None:
    for name, values in expected(gguf).items():
        if name.endswith("norm.weight"):
            assert torch.equal(torch.from_numpy(values).to(torch.bfloat16).float(), torch.from_numpy(values)), name


def test_shape_of_the_model_is_the_one_in_the_gguf_file(demo_target: Path, gguf: Path) -> None:
    config = AutoConfig.from_pretrained(demo_target)
    assert config.num_hidden_layers == field(gguf, "llama.block_count") == 30
    assert config.hidden_size == field(gguf, "llama.embedding_length") == 576
    assert config.num_attention_heads == field(gguf, "llama.attention.head_count")
    assert config.num_key_value_heads == field(gguf, "llama.attention.head_count_kv")
    assert config.intermediate_size == field(gguf, "llama.feed_forward_length")
    assert config.rope_theta == field(gguf, "llama.rope.freq_base")
    assert np.float32(config.rms_norm_eps) == np.float32(field(gguf, "llama.attention.layer_norm_rms_epsilon"))
    assert config.max_position_embeddings == field(gguf, "llama.context_length")
    assert config.dtype == torch.bfloat16


def test_it_knows_the_capital_of_france(demo_target: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(demo_target)
    model = AutoModelForCausalLM.from_pretrained(demo_target, dtype=torch.float32)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**prompt, do_sample=False, max_new_tokens=30)[0, prompt["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
    assert answer[-1] == tokenizer.eos_token_id, "it did not end its turn"
