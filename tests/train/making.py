"""Tiny targets and stores to train from, made without vLLM."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pipeline.extract.digests import model_digest
from pipeline.store.manifest import store_identity
from pipeline.store.records import CapturedSample
from pipeline.store.writer import Store

LAYERS = (0, 1, 2, 3)
"""of a target of four layers: three auxiliary ones and the last"""
VOCABULARY = 24


def target(folder: Path, *, hidden: int = 16, heads: int = 2, vocabulary: int = VOCABULARY, seed: int = 0) -> Path:
    """A Llama of four layers, in float32, with norms that are not all ones."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=4,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            max_position_embeddings=512,
            bos_token_id=None,
            eos_token_id=None,
            dtype="float32",
        )
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn_like(weight)
            weight.copy_(1 + 0.1 * noise if "norm" in name else 0.3 * noise)
    model.save_pretrained(folder)
    return folder


def store(
    folder: Path,
    target_folder: Path,
    samples: Sequence[CapturedSample],
    *,
    hidden: int = 16,
    per_unit: int = 4,
    finish: bool = True,
    **changes: Any,
) -> Path:
    """A store of these samples that says it was made from this target; `changes` go into the manifest."""
    fields: dict[str, Any] = {
        "engine": "made",
        "dtype": "float32",
        "storage": "fp32",
        "hidden_size": hidden,
        "num_layers": 4,
        "vocab_size": VOCABULARY,
        "output_layer_ids": LAYERS,
        "digests": dict.fromkeys(("data", "stack", "plan"), "0" * 64) | {"model": model_digest(target_folder)},
        "settings": {},
    }
    with Store.open_for_run(folder, store_identity(**fields | changes)) as opened:
        for unit, start in enumerate(range(0, len(samples), per_unit)):
            opened.write_unit(unit, list(samples[start : start + per_unit]))
        if finish:
            opened.finalise([], len(samples))
    return folder


def sample(
    name: str, tokens: Sequence[int], mask: Sequence[int], *, hidden: int = 16, layers: int = 4
) -> CapturedSample:
    """A sample of made-up states, a function of its name."""
    states = torch.randn(len(tokens), layers, hidden, generator=torch.Generator().manual_seed(hash_of(name)))
    return CapturedSample(name, list(tokens), list(mask), states)


def conversations(target_folder: Path, count: int) -> list[CapturedSample]:
    """Samples with the states that the target has: a prompt of a few tokens, and what the target goes on with."""
    model = LlamaForCausalLM.from_pretrained(target_folder).eval()
    rng, made = random.Random(0), []  # noqa: S311 - not for secrets
    for number in range(count):
        prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randrange(3, 8))]
        made.append(_answered(model, f"conversation-{number}", prompt, rng.randrange(6, 20)))
    return made


@torch.no_grad()
def _answered(model: LlamaForCausalLM, name: str, prompt: list[int], length: int) -> CapturedSample:
    tokens = list(prompt)
    for _ in range(length):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    states: list[torch.Tensor] = []
    hooks = [
        model.model.layers[layer].register_forward_hook(lambda *call: states.append(_first(call[-1])))
        for layer in LAYERS
    ]
    model(torch.tensor([tokens]))
    for hook in hooks:
        hook.remove()
    mask = [0] * len(prompt) + [1] * length
    return CapturedSample(name, tokens, mask, torch.stack([state[0] for state in states], dim=1))


def _first(output: Any) -> torch.Tensor:
    state: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return state


def hash_of(text: str) -> int:
    """A number for a text, the same in every process."""
    return int.from_bytes(text.encode(), "big") % (1 << 31)
