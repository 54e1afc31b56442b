"""A tiny random Llama, its own greedy answers as a store, and a draft that has learnt a little of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pipeline.extract.digests import model_digest
from pipeline.store.manifest import store_identity
from pipeline.store.records import CapturedSample
from pipeline.store.writer import Store

VOCAB, DRAFT_VOCAB, HIDDEN, LAYERS, EOS = 24, 12, 32, 6, 1
OUTPUTS = (1, 2, 3, 5)
INPUTS = [2, 3, 4]


def make_target(folder: Path, seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=256,
        eos_token_id=EOS,
        bos_token_id=0,
        dtype="float32",
        initializer_range=0.25,
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    model.save_pretrained(folder)
    return model


def states(target: LlamaForCausalLM, ids: list[int]) -> torch.Tensor:
    """After every decoder layer and before the final norm, float32 `[rows, layers, hidden]`."""
    kept = list[torch.Tensor]()
    hooks = [
        layer.register_forward_hook(lambda _m, _i, out: kept.append(out if torch.is_tensor(out) else out[0]))
        for layer in target.model.layers
    ]
    target(torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    return torch.stack([out[0] for out in kept], dim=1)


def next_token(target: LlamaForCausalLM, ids: list[int]) -> int:
    return int(target(torch.tensor([ids])).logits[0, -1].argmax())


def answer(target: LlamaForCausalLM, prompt: list[int], most: int) -> list[int]:
    """Greedy, with everything computed again for each token."""
    said = list[int]()
    while len(said) < most and (not said or said[-1] != EOS):
        said.append(next_token(target, [*prompt, *said]))
    return said


@dataclass
class Sample:
    name: str
    ids: list[int]
    mask: list[int]


def make_store(folder: Path, target: LlamaForCausalLM, target_folder: Path, samples: list[Sample]) -> Path:
    identity = store_identity(
        engine="test",
        dtype="float32",
        storage="fp32",
        hidden_size=HIDDEN,
        num_layers=LAYERS,
        vocab_size=VOCAB,
        output_layer_ids=OUTPUTS,
        digests={"data": "d" * 64, "model": model_digest(target_folder), "stack": "s" * 64, "plan": "p" * 64},
        settings={"tp_size": 1},
    )
    with Store.open_for_run(folder, identity) as store:
        for unit, sample in enumerate(samples):
            captured = CapturedSample(
                sample.name,
                sample.ids,
                sample.mask,
                states(target, sample.ids)[:, list(OUTPUTS)].contiguous(),
            )
            store.write_unit(unit, [captured], [])
        store.finalise([], len(samples))
    return folder


def make_draft(folder: Path, target_folder: Path, *, full_vocabulary: bool = False, **config: Any) -> Any:
    """Speculators' own model with random weights, saved as it saves one; returns the model."""
    from speculators.models.eagle3 import Eagle3DraftModel

    torch.manual_seed(7)
    layer = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        rope_theta=5000.0,
        initializer_range=0.2,
    )
    kept = list(range(VOCAB)) if full_vocabulary else [1, 2, 3, 5, 8, 9, 11, 14, 16, 19, 20, 23]
    d2t = torch.tensor([token - i for i, token in enumerate(kept)])
    t2d = torch.zeros(VOCAB, dtype=torch.bool)
    t2d[kept] = True
    model = Eagle3DraftModel.from_training_args(
        layer,
        t2d=None if full_vocabulary else t2d,
        d2t=None if full_vocabulary else d2t,
        draft_vocab_size=len(kept),
        norm_before_residual=config.pop("norm_before_residual", False),
        ttt_steps=3,
        verifier_name_or_path=str(target_folder),
        target_layer_ids=INPUTS,
        draft_attn_impl="sdpa",
        **config,
    )
    for name, weight in model.named_parameters():
        if "norm" in name and "verifier" not in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    model.save_pretrained(folder)
    return model


def teach(model: Any, target: LlamaForCausalLM, samples: list[list[int]], steps: int) -> None:
    """A few steps of the library's own training, so that a draft is sometimes right."""
    from speculators.losses import resolve_loss_config

    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.01)
    for step in range(steps):
        ids = samples[step % len(samples)]
        taken = states(target, ids)
        _, loss, _ = model(
            hidden_states=taken[None, :-1, [layer - 1 for layer in INPUTS]].flatten(2),
            input_ids=torch.tensor([ids[1:]]),
            document_ids=torch.zeros(1, len(ids) - 1, dtype=torch.long),
            verifier_last_hidden_states=taken[None, 1:, -1],
            loss_config=resolve_loss_config("kl_div", "eager"),
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def settings(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())
