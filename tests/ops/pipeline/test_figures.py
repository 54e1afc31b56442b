"""Estimates against numbers worked out by hand, or counted on the real model classes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ops.paths import CHECKOUT
from ops.pipeline import recipe
from ops.pipeline.errors import FactsError, MissingInputError, RecipeError
from ops.pipeline.facts import Facts, facts_of
from ops.pipeline.figures import (
    activation_bytes,
    cache_bytes,
    checkpoint_bytes,
    draft_of,
    export_bytes,
    state_bytes,
    stored_bytes,
    training_bytes,
)
from ops.pipeline.table import printed, rows
from tests.ops.pipeline.small_pipeline import Bench

SMALL = Facts(layers=4, hidden_size=8, vocab_size=32, intermediate_size=24, heads=2, kv_heads=1, head_dim=4)


def example(name: str) -> tuple[recipe.Recipe, Facts]:
    read = recipe.read(CHECKOUT / "examples" / "recipes" / f"{name}.toml")
    return read, facts_of(Path("/nowhere"), read.facts, name)


def test_kimis_states_take_57344_bytes_a_token_and_its_plan_11_5_terabytes() -> None:
    read, facts = example("kimi-k2.5-int4")
    extract = read.stages["extract"]
    assert state_bytes(facts, extract) == 57_344  # 4 x 7168 x 2
    tokens = 100_000 * 2_000
    assert stored_bytes(facts, extract, tokens) == 11_468_800_000_000 + 200_000_000 * 9
    table = {row[0].strip(): row[1] for row in rows(read, facts, Path("/nowhere"))}
    assert (table["states a token"], table["tokens"], table["store"]) == ("57,344", "200,000,000", "11.5 TB")
    # 200,000,000 tokens at 2,280 a second are 87,719 seconds.
    assert table["extraction"] == "24 h 21 min"
    assert (table["target's weights"], table["on each device"]) == ("540.0 GB", "67.5 GB")


@pytest.mark.parametrize(
    ("name", "trained", "head", "embedding"),
    [
        # Counted on speculators 0.9.0's Eagle3DraftModel with these sizes, requires_grad or not.
        ("demo", 5_089_536, 6_912_000, 28_311_552),
        ("kimi-k2.5-int4", 910_192_640, 229_376_000, 1_174_405_120),
        ("llama-3.1-8b", 293_617_664, 131_072_000, 525_336_576),
        ("qwen3-30b-a3b", 79_699_968, 65_536_000, 311_164_928),
    ],
)
def test_a_draft_has_as_many_parameters_as_speculators_makes(
    name: str, trained: int, head: int, embedding: int
) -> None:
    read, facts = example(name)
    draft = draft_of(facts, 4, read.stages["train"]["draft-vocab-size"], {})
    assert (draft.trained, draft.head, draft.embedding) == (trained, head, embedding)


def test_a_second_layer_and_a_trained_head_are_counted() -> None:
    one = draft_of(SMALL, 4, 16, {})
    two = draft_of(SMALL, 4, 16, {"draft-layers": 2, "train-lm-head": True})
    # A plain layer: q 8x8, k and v 8x4 each, o 8x8, three 8x24, two norms of 8; and the head's 16x8.
    assert two.trained - one.trained == 64 + 2 * 32 + 64 + 3 * 192 + 16 + 128
    assert (two.head, one.head) == (0, 128)


@pytest.mark.parametrize(
    ("name", "each"),
    [("kimi-k2.5-int4", 61 * 576 * 2), ("llama-3.1-8b", 131_072), ("qwen3-30b-a3b", 98_304), ("demo", 23_040)],
)
def test_the_cache_of_a_token_is_latent_or_plain_as_the_target_has_it(name: str, each: int) -> None:
    assert cache_bytes(example(name)[1]) == each


def test_compressed_and_rounded_stores_are_smaller_by_what_was_measured() -> None:
    plain, packed, rounded = (
        stored_bytes(SMALL, {"storage": storage}, 1000) for storage in ("bf16", "bf16-zstd", "fp8")
    )
    assert (plain, packed, rounded) == pytest.approx((73_000, 64_000 * 0.688 + 9_000, 64_000 * 0.503 + 9_000))


def test_memory_and_files_of_a_small_draft_by_hand() -> None:
    draft = draft_of(SMALL, 4, 16, {})
    trained = 3 * 64 + 16 * (8 + 4 + 4) + 64 + 3 * 192 + 32
    assert (draft.trained, draft.head, draft.embedding) == (trained, 128, 256)
    # 10 tokens in 3 steps: 2 bytes of 9x8 + 2x8 + 2x4 + 4x24, 14 of each of 16 logits; and 4 states of 8 in 2 bytes.
    activations = 10 * (3 * (2 * 192 + 14 * 16) + 64)
    assert activation_bytes(SMALL, 4, 16, 10, 3) == activations
    assert training_bytes(draft, 128, activations) == trained * 16 + (256 + 128 + 128) * 4 + activations
    assert checkpoint_bytes(draft) == (trained + 128 + 256) * 4 + trained * 8
    assert export_bytes(draft) == (trained + 128 + 256) * 2


def test_what_prepare_counted_takes_the_place_of_the_plan(tmp_path: Path) -> None:
    read, facts = example("llama-3.1-8b")
    header = tmp_path / "steps" / "prepare" / "tokenized.header.json"
    header.parent.mkdir(parents=True)
    header.write_text(json.dumps({"samples": 3, "tokens": 1000}))
    table = {row[0].strip(): row[1:] for row in rows(read, facts, tmp_path)}
    assert table["tokens"][0] == "1,000"
    assert table["tokens"][1].startswith("3 samples, counted in")
    assert table["store"][0] == f"{1000 * (4 * 4096 * 2 + 9) / 1e6:.1f} MB"


def test_a_table_says_what_it_does_not_know(bench: Bench) -> None:
    read = recipe.read(bench.file)
    text = printed(rows(read, facts_of(bench.folder / "target", read.facts, "small"), bench.run_folder))
    assert "give weight-bytes in [target]" in text
    assert "give samples and mean-tokens in [sizes]" in text


def test_facts_come_from_the_targets_config_and_must_be_the_recipes(bench: Bench) -> None:
    target = bench.folder / "target"
    facts = facts_of(target, {"layers": 4}, "small")
    assert (facts.hidden_size, facts.kv_heads, facts.head_dim, facts.intermediate_size) == (8, 2, 4, 24)
    with pytest.raises(
        FactsError, match=r"hidden-size is 8 in .*config\.json and 16 in \[target\] of recipe small"
    ) as error:
        facts_of(target, {"hidden-size": 16}, "small")
    assert error.value.exit_code == 60


def test_a_text_model_within_another_is_looked_into(tmp_path: Path) -> None:
    text = {"num_hidden_layers": 61, "hidden_size": 7168, "vocab_size": 163840, "num_attention_heads": 64}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "kimi_k25", "hidden_size": 1, "text_config": text}))
    (tmp_path / "model-1.safetensors").write_bytes(bytes(7))
    facts = facts_of(tmp_path, {"kv-lora-rank": 512, "rope-head-dim": 64, "weight-bytes": 9}, "kimi")
    assert (facts.hidden_size, facts.head_dim, cache_bytes(facts), facts.weight_bytes) == (7168, 112, 70_272, 7)


def test_facts_that_are_nowhere_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(
        RecipeError, match=r"hidden-size, vocab-size, heads of the target: not in .*give it in \[target\]"
    ):
        facts_of(tmp_path / "none", {"layers": 4}, "small")


def test_a_config_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(MissingInputError, match=r"cannot read .*config\.json"):
        facts_of(tmp_path, {}, "small")
