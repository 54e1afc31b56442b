"""The estimates of a recipe as a table: what, how much, and by which numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from rich.filesize import decimal

from ops.pipeline import figures
from ops.pipeline.facts import Facts
from ops.pipeline.recipe import Recipe
from ops.pipeline.running import duration
from ops.pipeline.steps import STEPS

Row = tuple[str, str, str]
# What the stages take when nothing is given (pipeline/extract/settings.py, pipeline/train/settings.py).
TOKEN_BUDGET, MAX_SEQ_LEN = 8192, 2048
BATCH_TOKENS, TTT_STEPS, DRAFT_VOCABULARY = 8192, 3, 32000


def rows(recipe: Recipe, facts: Facts, run: Path) -> Iterator[Row]:
    """Rows of the table.

    Args:
        recipe: what is planned.
        facts: of its target.
        run: the run folder, whose tokenized data is counted where it is there.
    """
    yield from _target(recipe, facts)
    yield from _states(recipe, facts, run)
    yield from _draft(recipe, facts)


def printed(table: Iterator[Row]) -> str:
    """The rows as text."""
    found = list(table)
    widths = [max(len(row[place]) for row in found) for place in (0, 1)]
    return "\n".join(f"{what:<{widths[0]}}  {much:>{widths[1]}}  {how}".rstrip() for what, much, how in found)


def _target(recipe: Recipe, facts: Facts) -> Iterator[Row]:
    tp = int(recipe.stages["extract"].get("tp-size", 1))
    shape = f"{facts.layers} layers, hidden {facts.hidden_size}, vocabulary {facts.vocab_size}"
    if facts.weight_bytes:
        yield "target's weights", decimal(facts.weight_bytes), shape
        yield "  on each device", decimal(facts.weight_bytes // tp), f"tensor parallel {tp}"
    else:
        yield "target's weights", "not known", f"{shape}; give weight-bytes in [target]"
    cache = figures.cache_bytes(facts)
    kind = (
        f"{facts.layers} layers x ({facts.kv_lora_rank} latent + {facts.rope_head_dim} rope) x 2 bytes, on each device"
        if facts.kv_lora_rank
        else f"{facts.layers} layers x 2 x {facts.kv_heads} heads x {facts.head_dim} x 2 bytes, shared by the devices"
    )
    budget = int(recipe.stages["extract"].get("token-budget", TOKEN_BUDGET))
    yield "KV cache a token", f"{cache:,}", kind
    yield "  of one extraction step", decimal(cache * budget), f"{budget:,} tokens"


def _states(recipe: Recipe, facts: Facts, run: Path) -> Iterator[Row]:
    extract = recipe.stages["extract"]
    captured = len(extract.get("layer-ids", range(figures.CAPTURED)))
    each = figures.state_bytes(facts, extract)
    width = each // captured // facts.hidden_size
    yield "states a token", f"{each:,}", f"{captured} layers x {facts.hidden_size} x {width} bytes"
    counted = _tokens(recipe, run)
    if counted is None:
        yield "store", "not known", "give samples and mean-tokens in [sizes]"
        return
    tokens, how = counted
    storage = extract.get("storage", "bf16")
    share = f"{storage}, {figures.STORAGE.get(storage, 1.0)} of the states, and {figures.ROW_BYTES} bytes a row"
    yield "tokens", f"{tokens:,.0f}", how
    yield "store", decimal(int(figures.stored_bytes(facts, extract, tokens))), share
    rate = recipe.sizes.get("tokens-per-second")
    if rate:
        yield "extraction", duration(tokens / rate), f"at {rate:,.0f} tokens/s, without loading the target"


def _tokens(recipe: Recipe, run: Path) -> tuple[float, str] | None:
    """Tokens of the training data, and where the number comes from."""
    header = run / STEPS / "prepare" / "tokenized.header.json"
    try:
        found = json.loads(header.read_bytes())
        return float(found["tokens"]), f"{found['samples']:,} samples, counted in {header}"
    except (OSError, ValueError, KeyError, TypeError):
        sizes = recipe.sizes
    if "samples" not in sizes or "mean-tokens" not in sizes:
        return None
    told = f"{sizes['samples']:,} samples of {sizes['mean-tokens']:,} tokens, the recipe's [sizes]"
    return sizes["samples"] * sizes["mean-tokens"], told


def _draft(recipe: Recipe, facts: Facts) -> Iterator[Row]:
    train = recipe.stages["train"]
    captured = len(recipe.stages["extract"].get("layer-ids", range(figures.CAPTURED)))
    vocabulary = int(train.get("draft-vocab-size", min(DRAFT_VOCABULARY, facts.vocab_size)))
    draft = figures.draft_of(facts, captured, vocabulary, train)
    tokens, steps = _tokens_a_device(recipe), int(train.get("ttt-steps", TTT_STEPS))
    activations = figures.activation_bytes(facts, captured, vocabulary, tokens, steps)
    parts = f"trained {draft.trained:,}, head {draft.head:,}, embedding {draft.embedding:,}"
    yield "draft's parameters", f"{draft.all:,}", parts
    training = figures.training_bytes(draft, vocabulary * facts.hidden_size, activations)
    yield "training, on each device", decimal(training), "estimate, docs/pipeline.md"
    yield (
        "  activations of it",
        decimal(activations),
        f"{tokens:,} tokens, {steps} steps, draft vocabulary {vocabulary:,}",
    )
    yield "a checkpoint", decimal(figures.checkpoint_bytes(draft)), "float32 weights and AdamW's moments"
    yield "an export", decimal(figures.export_bytes(draft)), "bfloat16, embedding included"


def _tokens_a_device(recipe: Recipe) -> int:
    """Tokens of a training step on one device: its share, but at least a whole sample of the longest there may be."""
    train, extract = recipe.stages["train"], recipe.stages["extract"]
    together = int(train.get("batch-tokens", BATCH_TOKENS))
    share = -(-together // int(train.get("nproc", 1)))
    return max(share, min(together, int(extract.get("max-seq-len", MAX_SEQ_LEN))))
