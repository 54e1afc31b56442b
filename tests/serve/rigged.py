"""Targets and drafts whose behaviour is known without computing it, and tiny random ones.

The *cyclic* target says after token t always `following(t)`: its layers add nothing, its embedding is the identity and
its head a permutation. The draft beside it sees only the last token, its attention looking at nothing else, and knows
what follows for the tokens in `KNOWN`; for all others it says something that never follows.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCAB = HIDDEN = 128
HEADS, HEAD_DIM = 2, 64
LAYERS = 6
FIRST = 8
"""ids below it are special; the draft's vocabulary is those from it on"""
ALWAYS, NEVER, HALF = range(8, 48), range(48, 88), range(88, 128)
"""three cycles: tokens after which the draft is always right, never, and every second time"""
KNOWN = {*ALWAYS, *HALF[::2]}


def following(token: int) -> int:
    """What the cyclic target says next: the next token of the same cycle."""
    cycle = next(cycle for cycle in (ALWAYS, NEVER, HALF) if token in cycle)
    return cycle[(token - cycle.start + 1) % len(cycle)]


def drafted(token: int) -> int:
    """What the draft thinks is next: right for `KNOWN`, else the token itself, which follows nothing here."""
    return following(token) if token in KNOWN else token


def cyclic_target(folder: Path) -> Path:
    """The cyclic target, saved."""
    model = LlamaForCausalLM(_llama())
    state = model.state_dict()
    for name, tensor in state.items():
        tensor.copy_(torch.zeros_like(tensor) if tensor.dim() == 2 else torch.ones_like(tensor))
        if "embed_tokens" in name:
            tensor.copy_(torch.eye(VOCAB))
    for token in range(FIRST, VOCAB):
        state["lm_head.weight"][following(token), token] = 1.0
    model.save_pretrained(folder)
    _save_tokenizer(folder)
    return folder


def cyclic_draft(folder: Path) -> Path:
    """The draft of the cyclic target, in the eagle3 form, with a vocabulary of its own."""
    inputs = 2 * HIDDEN  # the last token's embedding, then the target's states, of which nothing is read
    tensors = draft_zeros()
    # Queries and keys are the same for all tokens, so only the distance counts, and rotation makes 0 the best by far.
    for name in ("q_proj", "k_proj"):
        tensors[f"midlayer.self_attn.{name}.weight"][:, :HIDDEN] = 40 / math.sqrt(HIDDEN)
    tensors["midlayer.self_attn.v_proj.weight"] = torch.eye(HIDDEN, inputs)
    # From the second draft token on, what comes in is the draft's own last state, which must not drown the new token.
    tensors["midlayer.self_attn.o_proj.weight"] = 10 * torch.eye(HIDDEN)
    for token in range(FIRST, VOCAB):
        tensors["lm_head.weight"][drafted(token) - FIRST, token] = 1.0
    return _save_draft(folder, tensors)


def random_target(folder: Path) -> Path:
    """A random Llama whose tokens do not repeat soon."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(_llama())
    for tensor in model.parameters():
        if tensor.dim() == 2:
            torch.nn.init.normal_(tensor, std=0.15)
    model.save_pretrained(folder)
    _save_tokenizer(folder)
    return folder


def random_draft(folder: Path) -> Path:
    """A random draft in the eagle3 form."""
    torch.manual_seed(1)
    tensors = {
        name: tensor if tensor.dim() == 1 else torch.randn_like(tensor) * 0.15 for name, tensor in draft_zeros().items()
    }
    return _save_draft(folder, tensors)


def draft_config(**changes: Any) -> dict[str, Any]:
    """The config of a draft that fits either target."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": VOCAB,
        "draft_vocab_size": VOCAB - FIRST,
        "norm_before_residual": True,
        "eagle_aux_hidden_state_layer_ids": [2, 3, 5],
        "dtype": "float32",
        **changes,
    }


def write_draft(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Path:
    """A draft's two files."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def vocabulary() -> dict[str, torch.Tensor]:
    """`d2t` and `t2d`: draft id i is the target's id i + FIRST."""
    t2d = torch.zeros(VOCAB, dtype=torch.bool)
    t2d[FIRST:] = True
    return {"d2t": torch.full((VOCAB - FIRST,), FIRST), "t2d": t2d}


def draft_zeros() -> dict[str, torch.Tensor]:
    """A draft's tensors but for its vocabulary, all zero, the norms' weights one."""
    layer, inputs = "midlayer.", 2 * HIDDEN
    shapes = {
        "fc.weight": (HIDDEN, 3 * HIDDEN),
        "lm_head.weight": (VOCAB - FIRST, HIDDEN),
        f"{layer}self_attn.q_proj.weight": (HIDDEN, inputs),
        f"{layer}self_attn.k_proj.weight": (HIDDEN, inputs),
        f"{layer}self_attn.v_proj.weight": (HIDDEN, inputs),
        f"{layer}self_attn.o_proj.weight": (HIDDEN, HIDDEN),
        f"{layer}mlp.gate_proj.weight": (64, HIDDEN),
        f"{layer}mlp.up_proj.weight": (64, HIDDEN),
        f"{layer}mlp.down_proj.weight": (HIDDEN, 64),
    }
    norms = ("norm", f"{layer}hidden_norm", f"{layer}input_layernorm", f"{layer}post_attention_layernorm")
    return {name: torch.zeros(shape) for name, shape in shapes.items()} | {
        f"{name}.weight": torch.ones(HIDDEN) for name in norms
    }


def _save_draft(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    return write_draft(folder, draft_config(), tensors | vocabulary())


def _llama() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=512,
        bos_token_id=2,
        eos_token_id=1,
        tie_word_embeddings=False,
        dtype="float32",
    )


def _save_tokenizer(folder: Path) -> None:
    """Words `t2` to `t127` and two special ones, of which id 1 ends a turn; a conversation is its messages' words."""
    ids = {"[none]": 0, "[end]": 1} | {f"t{i}": i for i in range(2, VOCAB)}
    words = Tokenizer(models.WordLevel(ids, unk_token="[none]"))  # noqa: S106
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    made = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="[end]", unk_token="[none]")  # noqa: S106
    made.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    made.save_pretrained(folder)
