"""What is read from a target's config.json, and what is done with it before any weight is loaded."""

from __future__ import annotations

import json
from collections import namedtuple
from pathlib import Path

import pytest

from pipeline.errors import InputError, NoSamplesError, NoSpaceError, SettingsError
from pipeline.extract import job as jobs
from pipeline.extract.command import main
from pipeline.extract.target import locate_target, read_target
from tests.engines import random_samples
from tests.pipeline.extract.conftest import write_samples

# The numbers of Kimi-K2.5's text model, as its config.json has them: 61 layers, hidden size 7168.
KIMI = {
    "model_type": "kimi_k25",
    "text_config": {
        "num_hidden_layers": 61,
        "hidden_size": 7168,
        "vocab_size": 163840,
        "max_position_embeddings": 262144,
        "dtype": "bfloat16",
    },
}


@pytest.fixture
def kimi(tmp_path: Path) -> Path:
    folder = tmp_path / "kimi"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(KIMI))
    return folder


@pytest.fixture
def flags(kimi: Path, prepared: Path, tmp_path: Path) -> list[str]:
    return ["--model-path", str(kimi), "--prepared-data", str(prepared), "--output-dir", str(tmp_path / "store")]


def test_a_multimodal_targets_text_model_is_read(kimi):
    target = read_target(kimi)
    assert (target.num_layers, target.hidden_size, target.vocab_size, target.dtype) == (61, 7168, 163840, "bfloat16")


def test_auto_is_the_checkpoints_own_dtype_and_never_a_smaller_one(llama):
    # vLLM's own "auto" computes float32 checkpoints in bfloat16.
    assert read_target(llama).computing_dtype("auto") == "float32"
    assert read_target(llama).computing_dtype("bfloat16") == "bfloat16"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "cannot read config.json"), ("{", "is not JSON"), ("[]", "no settings"), ("{}", "no num_hidden_layers")],
)
def test_a_folder_that_is_no_target_is_one_sentence(tmp_path, content, complaint):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match=complaint):
        read_target(tmp_path)


def test_a_path_that_is_no_folder_is_not_taken_for_a_hub_model():
    with pytest.raises(InputError, match="it is not a folder"):
        locate_target(Path("./no/such/folder"), config_only=True)


def test_a_hub_model_that_cannot_be_had_is_one_sentence(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="neither a folder here nor to be had from the hub"):
        locate_target(Path("nobody/no-such-model"), config_only=True)


def test_dry_run_of_the_full_size_target_prints_plan_bytes_and_steps(flags, prepared, tmp_path, capsys):
    write_samples(prepared, random_samples([2000] * 10))
    layers = ["--layer-ids", "2", "30", "58", "60", "--tp-size", "8"]
    assert main([*flags, *layers, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    # 4 layers x 7168 x 2 bytes a token; 20,000 tokens; 4 samples of 2,000 fill a step of 8,192.
    assert "57,344 a token" in printed
    assert "20,000" in printed
    assert "3 units" in printed
    assert "outputs (2, 30, 58, 60), which serving calls inputs (3, 31, 59, 61)" in printed
    assert "tensor parallel 8" in printed
    assert not (tmp_path / "store").exists()


def test_the_estimate_is_the_states_and_little_more(flags, prepared, capsys):
    write_samples(prepared, random_samples([2000] * 10))
    main([*flags, "--dry-run"])
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("bytes"))
    estimate = int(line.split()[1].replace(",", ""))
    assert 20_000 * 57_344 < estimate < 20_000 * 57_344 * 1.01


def test_what_cannot_fit_on_the_disk_is_refused_before_the_engine_starts(flags, monkeypatch, tmp_path, stack_json):
    monkeypatch.setenv("EYAS_STACK_JSON", str(stack_json))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(jobs.shutil, "disk_usage", lambda _: usage(10**9, 10**9, 10**6))
    with pytest.raises(NoSpaceError, match=r"needs .* more and its disk has 1.0 MB free"):
        main(flags)
    assert not list((tmp_path / "store" / "shards").iterdir())


def test_longer_samples_than_the_target_has_positions_are_refused(flags):
    with pytest.raises(SettingsError, match="more than the 262144 positions"):
        main([*flags, "--max-seq-len", "262145"])


@pytest.mark.parametrize(
    ("layers", "complaint"), [("61", "does not exist"), ("2 2", "named twice"), ("9 3", "comes after")]
)
def test_layers_the_target_does_not_have_are_refused(flags, layers, complaint):
    with pytest.raises(SettingsError, match=complaint):
        main([*flags, "--layer-ids", *layers.split()])


def test_data_with_no_usable_sample_is_an_error(flags, prepared):
    write_samples(prepared, [[], [163840]])
    with pytest.raises(NoSamplesError, match="2 of 2 rejected, the first: empty"):
        main(flags)
