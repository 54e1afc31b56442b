"""What a recipe will take: disk, memory and time, by formulas. docs/pipeline.md says where each comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ops.pipeline.facts import Facts

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
# Share of the states' bytes that a storage takes (docs/performance.md, measured on the demo's states).
STORAGE = {"bf16": 1.0, "bf16-zstd": 0.688, "fp8": 0.503}
# A store's rows hold an int64 token id and a uint8 of the loss mask beside the states (docs/store.md).
ROW_BYTES = 9
CAPTURED = 4
"""layers captured by default"""
# float32 weight, gradient, and AdamW's two moments, of each parameter that is trained.
TRAINED_BYTES, FROZEN_BYTES, MOMENT_BYTES = 16, 4, 8
EXPORT_BYTES = 2
"""bfloat16"""
# Of one token in one step of training-time test, with bfloat16 autocast: logits in bfloat16 and float32, their
# softmax and the target's in float32.
LOGIT_BYTES = 14


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Parameters of an EAGLE-3 draft with one Llama layer, by part."""

    trained: int
    head: int
    """lm_head, the target's rows of the draft vocabulary; speculators does not train it"""
    embedding: int
    """the target's, not trained"""

    @property
    def all(self) -> int:
        """Every parameter."""
        return self.trained + self.head + self.embedding


def draft_of(facts: Facts, captured: int, draft_vocab: int, train: Mapping[str, Any]) -> Draft:
    """The draft that speculators makes for a target.

    Args:
        facts: of the target.
        captured: layers in the store, the last one included, which is the draft's aim and not its input.
        draft_vocab: tokens that the draft can say.
        train: settings of training; of them draft-layers and train-lm-head count.
    """
    hidden, attention = facts.hidden_size, facts.heads * facts.head_dim
    keys = facts.kv_heads * facts.head_dim
    heads, head = attention + 2 * keys, draft_vocab * hidden
    # Queries, keys and values of the first layer see embedding and state side by side; it has one norm more for that.
    layer = heads * hidden + attention * hidden + 3 * hidden * facts.intermediate_size + 2 * hidden
    layers = int(train.get("draft-layers", 1)) * layer + heads * hidden + hidden
    trained_head = head if train.get("train-lm-head") else 0
    return Draft(
        trained=(captured - 1) * hidden * hidden + layers + hidden + trained_head,
        head=head - trained_head,
        embedding=facts.vocab_size * hidden,
    )


def state_bytes(facts: Facts, extract: Mapping[str, Any]) -> int:
    """Bytes of one token's states, layers times hidden size times bytes of a value, before compression."""
    captured = len(extract.get("layer-ids", range(CAPTURED)))
    return captured * facts.hidden_size * DTYPE_BYTES.get(extract.get("dtype", "bfloat16"), 2)


def stored_bytes(facts: Facts, extract: Mapping[str, Any], tokens: float) -> float:
    """Bytes of a store of so many tokens."""
    return tokens * (state_bytes(facts, extract) * STORAGE.get(extract.get("storage", "bf16"), 1.0) + ROW_BYTES)


def cache_bytes(facts: Facts) -> int:
    """Bytes of KV cache a token takes in bfloat16, over all layers."""
    if facts.kv_lora_rank:
        return facts.layers * (facts.kv_lora_rank + facts.rope_head_dim) * 2
    return facts.layers * 2 * facts.kv_heads * facts.head_dim * 2


def activation_bytes(facts: Facts, captured: int, draft_vocab: int, tokens: int, steps: int) -> int:
    """Bytes that a batch keeps for the backward pass.

    Of every token and step of training-time test the layer keeps, in bfloat16: the inputs of five norms and of four
    groups of projections (9 hidden sizes), queries and attention's result, keys and values, and four of the MLP's
    width. The logits come on top, and once for the batch the states themselves.
    """
    attention, keys = facts.heads * facts.head_dim, facts.kv_heads * facts.head_dim
    layer = 2 * (9 * facts.hidden_size + 2 * attention + 2 * keys + 4 * facts.intermediate_size)
    return tokens * (steps * (layer + LOGIT_BYTES * draft_vocab) + captured * facts.hidden_size * 2)


def training_bytes(draft: Draft, target_head: int, activations: int) -> int:
    """Bytes on the device that trains: float32 weights, gradients and moments, frozen weights, activations.

    The frozen ones are the embedding, the draft's head, and the target's rows of it that give the aim.
    """
    frozen = draft.embedding + draft.head + target_head
    return draft.trained * TRAINED_BYTES + frozen * FROZEN_BYTES + activations


def checkpoint_bytes(draft: Draft) -> int:
    """Bytes of a checkpoint to resume from: float32 weights and the optimizer's moments."""
    return draft.all * 4 + draft.trained * MOMENT_BYTES


def export_bytes(draft: Draft) -> int:
    """Bytes of an export in bfloat16, with the embedding."""
    return draft.all * EXPORT_BYTES
