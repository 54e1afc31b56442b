"""Drafts that do not fit are refused before an engine starts, the field named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.errors import CheckpointError, FitError, InputError
from pipeline.evaluate.draft import read_draft
from pipeline.evaluate.fit import check_fit
from pipeline.extract.target import Target
from tests.serve import rigged

TARGET = Target(
    folder=Path("target"), num_layers=6, hidden_size=128, vocab_size=128, max_positions=512, dtype="float32"
)


def check(folder: Path) -> None:
    check_fit(read_draft(folder), TARGET)


def tensors(**changes: torch.Tensor | None) -> dict[str, torch.Tensor]:
    made: dict[str, Any] = {**rigged.draft_zeros(), **rigged.vocabulary(), **changes}
    return {name: tensor for name, tensor in made.items() if tensor is not None}


def speculators_form() -> dict[str, Any]:
    inner = rigged.draft_config()
    outer = {name: inner.pop(name) for name in ("draft_vocab_size", "eagle_aux_hidden_state_layer_ids")}
    return {**outer, "speculators_model_type": "eagle3", "transformer_layer_config": inner}


def test_both_forms_of_a_right_draft_fit(tmp_path: Path) -> None:
    for name, config in (("eagle3", rigged.draft_config()), ("speculators", speculators_form())):
        check(rigged.write_draft(tmp_path / name, config, tensors()))
        assert read_draft(tmp_path / name).form == name
        assert read_draft(tmp_path / name).layer_ids == (2, 3, 5)


def test_layer_ids_are_also_found_where_vllm_looks_second(tmp_path: Path) -> None:
    config = rigged.draft_config()
    config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": config.pop("eagle_aux_hidden_state_layer_ids")}
    assert read_draft(rigged.write_draft(tmp_path / "draft", config, tensors())).layer_ids == (2, 3, 5)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"vocab_size": 127}, r"vocab_size is 127 in the draft .* and 128 in the target"),
        ({"hidden_size": 64}, r"target_hidden_size is 64 in the draft .* and 128"),
        ({"target_hidden_size": 64}, r"target_hidden_size is 64 in the draft .* and 128"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 3, 7]}, r"has 7 .* whose states are 0 to 6"),
        ({"eagle_aux_hidden_state_layer_ids": [-1, 3, 5]}, r"has -1 "),
        ({"eagle_aux_hidden_state_layer_ids": [3, 2, 5]}, r"\[3, 2, 5\]: .*ascending"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 2, 5]}, r"\[2, 2, 5\]: .*once"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 5]}, r"fc.weight is \[128, 384\] .* asks for \[128, 256\]"),
        ({"eagle_aux_hidden_state_layer_ids": ["2"]}, r"must be a list of layers"),
        ({"draft_vocab_size": 100}, r"d2t is \[120\]|lm_head.weight is \[120, 128\] .* asks for \[100, 128\]"),
        ({"draft_vocab_size": "many"}, r"draft_vocab_size in .* is 'many'"),
        ({"architectures": ["LlamaForCausalLM"]}, r"architectures of .* is LlamaForCausalLM: no EAGLE-3 draft"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(FitError, match=told):
        check(rigged.write_draft(tmp_path / "draft", rigged.draft_config(**change), tensors()))


def shifted(by: int) -> torch.Tensor:
    return torch.full((120,), 8) + by * (torch.arange(120) == 119)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"fc.weight": None}, r"fc.weight is missing .* asks for \[128, 384\]"),
        ({"norm.weight": torch.ones(64)}, r"norm.weight is \[64\] .* asks for \[128\]"),
        ({"embed_tokens.weight": torch.ones(64, 128)}, r"embed_tokens.weight is \[64, 128\]"),
        ({"d2t": None}, r"d2t is missing"),
        ({"d2t": shifted(1)}, r"d2t .* gives the target's id 128, and vocab_size is 128"),
        ({"d2t": shifted(-1)}, r"d2t .* gives a target's id twice"),
        ({"t2d": torch.arange(128) < 120}, r"t2d and d2t .* name different tokens"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(change: dict[str, torch.Tensor | None], told: str, tmp_path: Path) -> None:
    with pytest.raises(FitError, match=told):
        check(rigged.write_draft(tmp_path / "draft", rigged.draft_config(), tensors(**change)))


def test_a_draft_with_the_targets_whole_vocabulary_needs_no_map(tmp_path: Path) -> None:
    config = rigged.draft_config(draft_vocab_size=128)
    whole = tensors(d2t=None, t2d=None, **{"lm_head.weight": torch.zeros(128, 128)})
    check(rigged.write_draft(tmp_path / "draft", config, whole))


def test_weights_that_are_cut_off_are_a_damaged_checkpoint(tmp_path: Path) -> None:
    folder = rigged.write_draft(tmp_path / "draft", rigged.draft_config(), tensors())
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="cut off"):
        check(folder)
    weights.write_bytes(b"short")
    with pytest.raises(CheckpointError, match="no whole safetensors file"):
        check(folder)
    weights.unlink()
    with pytest.raises(CheckpointError, match="No such file"):
        check(folder)


def test_a_config_that_is_not_json_is_a_damaged_checkpoint(tmp_path: Path) -> None:
    folder = rigged.write_draft(tmp_path / "draft", rigged.draft_config(), tensors())
    for text in ("{", json.dumps([1])):
        (folder / "config.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"config\.json"):
            check(folder)


def test_a_folder_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no draft at"):
        read_draft(tmp_path / "nowhere")
