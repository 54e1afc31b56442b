"""EAGLE-3 written down once more, in a few lines and with nothing of the library: what the others are held against.

Names are those of the public checkpoints (`midlayer.*`); speculators' `layers.0.*` are renamed to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

Weights = Mapping[str, Tensor]
Config = Mapping[str, Any]


def read(folder: Path) -> tuple[Config, dict[str, Tensor]]:
    """A draft's settings, flat, and its tensors in float32, from the files of either form."""
    config = json.loads((folder / "config.json").read_text())
    config |= config.pop("transformer_layer_config", {})
    tensors = load_file(folder / "model.safetensors")
    named = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in tensors.items()}
    return config, {name: t.float() if t.is_floating_point() else t for name, t in named.items()}


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def rope(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary embedding of `[rows, heads, size]`, halves paired as Llama does."""
    half = x.shape[-1] // 2
    angle = positions[:, None].double() * theta ** (-torch.arange(half).double() / half)
    cos, sin = (f(angle).float()[:, None] for f in (torch.cos, torch.sin))
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def fuse(w: Weights, states: Tensor) -> Tensor:
    """`[rows, layers * hidden]` to `[rows, hidden]`."""
    return states @ w["fc.weight"].T


def layer(c: Config, w: Weights, embeds: Tensor, hidden: Tensor) -> Tensor:
    """The one decoder layer over a whole sequence, causal; its output is before the last norm."""
    eps, rows = c["rms_norm_eps"], len(embeds)
    theta = c["rope_theta"] if "rope_theta" in c else c["rope_parameters"]["rope_theta"]
    heads, kv, size = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    m = {name.removeprefix("midlayer."): tensor for name, tensor in w.items()}
    x = torch.cat([norm(embeds, m["input_layernorm.weight"], eps), norm(hidden, m["hidden_norm.weight"], eps)], dim=-1)
    q, k, v = (
        (x @ m[f"self_attn.{name}_proj.weight"].T).view(rows, count, size)
        for name, count in (("q", heads), ("k", kv), ("v", kv))
    )
    q, k = (rope(t, torch.arange(rows), theta) for t in (q, k))
    k, v = (t.repeat_interleave(heads // kv, dim=1) for t in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) / size**0.5
    scores = scores.masked_fill(torch.ones(rows, rows).triu(1).bool(), -torch.inf)
    attended = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(rows, -1)
    hidden = hidden + attended @ m["self_attn.o_proj.weight"].T
    y = norm(hidden, m["post_attention_layernorm.weight"], eps)
    gate, up = y @ m["mlp.gate_proj.weight"].T, y @ m["mlp.up_proj.weight"].T
    return hidden + (gate * gate.sigmoid() * up) @ m["mlp.down_proj.weight"].T


def logits(c: Config, w: Weights, hidden: Tensor) -> Tensor:
    """Over the draft's vocabulary."""
    return norm(hidden, w["norm.weight"], c["rms_norm_eps"]) @ w["lm_head.weight"].T


def propose(c: Config, w: Weights, embed: Tensor, states: Tensor, tokens: list[int], steps: int) -> list[int]:
    """One round as a server drafts it, everything computed again for every token.

    Args:
        c, w: the draft's settings and tensors.
        embed: the target's embeddings.
        states: the target's auxiliary states of all tokens but the last, joined, `[rows, layers * hidden]`.
        tokens: all that are there, `rows + 1`.
        steps: how many to propose.
    """
    hidden, read_next, proposed = fuse(w, states), list(tokens[1:]), list[int]()
    for _ in range(steps):
        out = layer(c, w, embed[read_next], hidden)
        draft_id = int(logits(c, w, out[-1:]).argmax())
        proposed.append(draft_id + int(w["d2t"][draft_id]))
        hidden, read_next = torch.cat([hidden, out[-1:]]), [*read_next, proposed[-1]]
    return proposed
