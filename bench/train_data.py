"""What bench.train and bench.train-kill train on: the ends of a target, and a store of states that none computed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from pipeline.extract.digests import model_digest
from pipeline.store.manifest import store_identity
from pipeline.store.records import CapturedSample
from pipeline.store.writer import Store

UNIT = 8
"""samples"""


@dataclass(frozen=True)
class Sizes:
    """Of a target and of a store made from it."""

    hidden: int
    heads: int
    intermediate: int
    layers: int
    captured: tuple[int, ...]
    """layers in output numbering; the last one is the target's last"""
    vocabulary: int
    samples: int
    rows: tuple[int, int]
    """of the shortest and of the longest sample"""


SMALL = Sizes(32, 2, 64, 4, (0, 1, 2, 3), 256, samples=64, rows=(10, 40))
DEMO = Sizes(576, 9, 1536, 30, (1, 14, 26, 29), 49_152, samples=300, rows=(130, 250))
"""of SmolLM2-135M-Instruct and its demo store"""


def make(folder: Path, sizes: Sizes) -> tuple[Path, Path]:
    """A target's folder, and a store that says it was made from it."""
    target = folder / "target"
    _make_target(target, sizes)
    identity = store_identity(
        engine="bench",
        dtype="bfloat16",
        storage="bf16",
        hidden_size=sizes.hidden,
        num_layers=sizes.layers,
        vocab_size=sizes.vocabulary,
        output_layer_ids=sizes.captured,
        digests=dict.fromkeys(("data", "stack", "plan"), "0" * 64) | {"model": model_digest(target)},
        settings={},
    )
    with Store.open_for_run(folder / "store", identity) as store:
        for unit, start in enumerate(range(0, sizes.samples, UNIT)):
            numbers = range(start, min(start + UNIT, sizes.samples))
            store.write_unit(unit, [_sample(number, sizes) for number in numbers])
        store.finalise([], sizes.samples)
    return target, folder / "store"


def _make_target(folder: Path, sizes: Sizes) -> None:
    """A Llama's config and its first and last weights: training reads no others."""
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": sizes.vocabulary,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.heads,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
    }
    (folder / "config.json").write_text(json.dumps(config))
    random = torch.Generator().manual_seed(0)
    shape = sizes.vocabulary, sizes.hidden
    weights = {
        "model.embed_tokens.weight": 0.1 * torch.randn(shape, generator=random),
        "model.norm.weight": torch.ones(sizes.hidden),
        "lm_head.weight": 0.1 * torch.randn(shape, generator=random),
    }
    save_file(weights, folder / "model.safetensors")


def _sample(number: int, sizes: Sizes) -> CapturedSample:
    """A prompt of a quarter and an answer; low ids are more frequent, as in texts."""
    random = torch.Generator().manual_seed(number)
    low, high = sizes.rows
    rows = int(torch.randint(low, high + 1, (), generator=random))
    states = torch.randn(rows, len(sizes.captured), sizes.hidden, generator=random)
    tokens = (torch.rand(rows, generator=random) ** 3 * sizes.vocabulary).long()
    mask = [int(row >= rows // 4) for row in range(rows)]
    return CapturedSample(str(number), tokens.tolist(), mask, states.bfloat16())
