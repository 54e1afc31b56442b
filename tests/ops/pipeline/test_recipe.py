"""Recipes: what is refused and how, what the held-out part takes over, and that the examples fit the stages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ops.paths import CHECKOUT
from ops.pipeline import recipe
from ops.pipeline.errors import MissingInputError, RecipeError
from ops.pipeline.flags import FLAGS, words
from ops.pipeline.steps import steps_of
from tests.ops.pipeline.small_pipeline import STEPS, Bench

EXAMPLES = sorted((CHECKOUT / "examples" / "recipes").glob("*.toml"))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("epochs = 2", "epoch = 2", r"small\.toml \[train\]: unknown key epoch; epochs is meant\?"),
        ("epochs = 2", "max_steps = 2", r"small\.toml \[train\]: unknown key max_steps; max-steps is meant\?"),
        ("epochs = 2", "output-dir = 'x'", r"small\.toml \[train\]: unknown key output-dir"),
        ("epochs = 2", "epochs = '2'", r"small\.toml \[train\]: epochs = '2' is not a whole number"),
        ("epochs = 2", "epochs = true", r"small\.toml \[train\]: epochs = True is not a whole number"),
        ("layers = 4", "layers = 4.5", r"small\.toml \[target\]: layers = 4\.5 is not a whole number"),
        ("[prepare]", "[prepair]", r"small\.toml: unknown table \[prepair\]"),
        ("[held-out.regenerate]", "[held-out.train]", r"small\.toml \[held-out\]: unknown table train"),
        ('prompts = ["prompts.jsonl"]', "", r"small\.toml \[data\]: prompts must be a list of files"),
        ('"held-out.jsonl"', "[]", r"small\.toml \[data\]: held-out-prompts must be the name of a file"),
        ('"held-out.jsonl"', '"prompts.jsonl"', r"prompts\.jsonl is in prompts too, so it is not held out"),
        ("[data]", "[data]\nanswers = []", r"small\.toml \[data\]: unknown key answers"),
        ("[target]", "name = 1\n[target]", r"small\.toml: name stands outside of a table"),
        ("[train]", "[train", r"small\.toml is not TOML"),
        ("[prepare]", "[extract]\nlayer-ids = [1, true]\n[prepare]", "is not a list of whole numbers"),
    ],
)
def test_what_means_nothing_is_refused_by_name_and_place(bench: Bench, old: str, new: str, told: str) -> None:
    bench.edit(old, new)
    with pytest.raises(RecipeError, match=told) as refusal:
        recipe.read(bench.file)
    assert (refusal.value.exit_code, "\n" in str(refusal.value)) == (40, False)


def test_a_recipe_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"cannot read the recipe .*none\.toml"):
        recipe.read(tmp_path / "none.toml")


def test_the_held_out_part_has_the_stages_settings_but_for_its_own(bench: Bench) -> None:
    bench.edit("temperature = 0.7", "temperature = 0.7\nmax-new-tokens = 64")
    stages = recipe.read(bench.file).stages
    assert stages["regenerate"] == {"temperature": 0.7, "max-new-tokens": 64}
    assert stages["held-out.regenerate"] == {"temperature": 0.0, "max-new-tokens": 64}
    assert stages["held-out.prepare"] == stages["prepare"] == {"max-seq-len": 512}


def test_trust_is_handed_to_every_stage_that_can_be_told(bench: Bench) -> None:
    bench.edit("layers = 4", "layers = 4\ntrust-remote-code = true")
    stages = recipe.read(bench.file).stages
    trusting = {name for name, settings in stages.items() if settings.get("trust-remote-code")}
    held_out = {f"held-out.{name}" for name in ("regenerate", "prepare", "extract")}
    assert trusting == {"regenerate", "prepare", "extract", "evaluate", "evaluate-exports"} | held_out


def test_settings_become_the_flags_a_stage_reads() -> None:
    settings = {"layer-ids": [2, 30], "learning-rate": 1e-4, "trust-remote-code": True, "train-lm-head": False}
    assert words(settings) == ("--layer-ids", "2", "30", "--learning-rate=0.0001", "--trust-remote-code")


def test_paths_are_relative_to_the_recipe(bench: Bench) -> None:
    bench.edit("epochs = 2", "init-from = '../older'")
    (train,) = (step for step in bench.steps() if step.name == "train")
    assert f"--init-from={bench.folder.resolve().parent / 'older'}" in train.call.arguments
    assert train.inputs["init-from"].path == bench.folder.resolve().parent / "older"
    # Where it lies is not what training depends on.
    assert "init-from" not in train.recorded


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_whole(file: Path) -> None:
    read = recipe.read(file)
    steps = steps_of(read, Path("/models/target"), Path("/runs/here"))
    assert tuple(step.name for step in steps) == STEPS
    layers = read.stages["extract"].get("layer-ids")
    if layers:
        assert layers == sorted(layers)
        # The last captured layer is the target's last, whose state the draft aims at.
        assert layers[-1] == read.facts["layers"] - 1
    assert read.stages["held-out.regenerate"].get("temperature", 0.0) == 0.0


def test_the_examples_are_the_four_that_the_documentation_names() -> None:
    assert [file.stem for file in EXAMPLES] == ["demo", "kimi-k2.5-int4", "llama-3.1-8b", "qwen3-30b-a3b"]


def registered() -> list[str]:
    """The pipeline's stages that `python -m pipeline` knows."""
    text = (CHECKOUT / "pipeline" / "__main__.py").read_text(encoding="utf-8")
    known = set(re.findall(r'^    "(\w+)": "', text, re.MULTILINE))
    return [stage for stage in FLAGS if stage in known]


def test_the_stages_are_found() -> None:
    assert {"prepare", "extract"} <= set(registered())


@pytest.mark.parametrize("stage", registered())
def test_every_flag_of_a_recipe_is_one_of_the_stages(stage: str) -> None:
    sources = sorted((CHECKOUT / "pipeline" / stage).glob("*.py"))
    text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    for flag in FLAGS[stage]:
        # Written out, or the field of a settings class that a flag is made of.
        assert re.search(rf'"(--)?{flag}"|^    {flag.replace("-", "_")}: ', text, re.MULTILINE), (stage, flag)
