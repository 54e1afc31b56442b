"""What is not exported: drafts that would not load, or would be served as something else; and others' folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline.errors import CheckpointError, ExportError, FitError, InputError, SettingsError, UserError
from pipeline.export.check import check_export
from pipeline.export.command import main
from pipeline.export.forms import Form
from pipeline.export.public import FIELDS, TENSORS, check_public
from tests.train import tiny_drafts

Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], object]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refusals")
    tiny_drafts.make_target(folder / "target")
    tiny_drafts.make_draft(folder / "draft", folder / "target")
    return folder


def export(base: Path, draft: Path, output: Path, *flags: str) -> int:
    return main(["--draft", str(draft), "--model-path", str(base / "target"), "--output-dir", str(output), *flags])


def changed(base: Path, folder: Path, change: Change) -> Path:
    shutil.copytree(base / "draft", folder)
    config, tensors = tiny_drafts.settings(folder), load_file(folder / "model.safetensors")
    change(config, tensors)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def layer(**fields: Any) -> Change:
    return lambda config, _: config["transformer_layer_config"].update(fields)


def field(**fields: Any) -> Change:
    return lambda config, _: config.update(fields)


def values(name: str, change: Callable[[torch.Tensor], torch.Tensor | None]) -> Change:
    def apply(_: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        if (made := change(tensors.pop(name))) is not None:
            tensors[name] = made

    return apply


def put(at: int, value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def apply(tensor: torch.Tensor) -> torch.Tensor:
        tensor.view(-1)[at] = value
        return tensor

    return apply


NEITHER = {
    "a value is not finite": (values("fc.weight", put(5, torch.nan)), ExportError, r"fc\.weight has 1 values"),
    "d2t leads beyond": (values("d2t", put(11, 13)), ExportError, "d2t leads to target id 24"),
    "d2t out of order": (values("d2t", put(3, -2)), ExportError, "d2t is not in order: draft id 2"),
    "t2d elsewhere": (values("t2d", put(0, True)), ExportError, "t2d is not true exactly"),
    "t2d missing": (values("t2d", lambda _: None), ExportError, "t2d"),
    "a tensor is missing": (values("norm.weight", lambda _: None), ExportError, r"norm\.weight is missing"),
    "a tensor too many": (
        lambda _, tensors: tensors.update(extra=torch.zeros(2)),
        ExportError,
        "extra is not a tensor",
    ),
    "a shape": (
        values("layers.0.mlp.up_proj.weight", lambda t: t[:-1]),
        ExportError,
        r"up_proj\.weight is \(47, 32\) and not \(48, 32\)",
    ),
    "two layers": (field(eagle_aux_hidden_state_layer_ids=[2, 3]), ExportError, "place for three"),
    "layers out of order": (field(eagle_aux_hidden_state_layer_ids=[3, 2, 4]), ExportError, "in order of the layers"),
    "a layer the target has not": (field(eagle_aux_hidden_state_layer_ids=[2, 3, 6]), FitError, "has 6"),
    "another hidden size": (layer(hidden_size=64), FitError, "hidden_size is 64 in the draft"),
    "another vocabulary": (layer(vocab_size=30), FitError, "vocab_size is 30 in the draft"),
    "no EAGLE-3 draft": (field(speculators_model_type="dflash"), CheckpointError, "speculators_model_type"),
    "no proposal": (field(speculators_config={}), CheckpointError, "no EAGLE-3 draft's"),
}


@pytest.mark.parametrize("what", NEITHER)
def test_a_draft_that_would_not_serve_is_refused_and_nothing_written(base: Path, tmp_path: Path, what: str) -> None:
    change, error, told = NEITHER[what]
    draft = changed(base, tmp_path / "draft", change)
    for form in ("speculators", "eagle3"):
        with pytest.raises(UserError, match=told) as caught:
            export(base, draft, tmp_path / "out", "--format", form)
        assert type(caught.value) is error
        assert not list((tmp_path / "out").glob("*"))


ONLY_SPECULATORS = {
    "norm_before_residual": field(norm_before_residual=True),
    "norm_output": field(norm_output=True),
    "rope_theta": layer(rope_parameters={"sliding_attention": {"rope_theta": 1.0, "rope_type": "default"}}),
    "partial_rotary_factor": layer(
        rope_parameters={"rope_theta": 5000.0, "rope_type": "default", "partial_rotary_factor": 0.5}
    ),
    "sliding_window": layer(sliding_window=64),
    "embed_tokens.weight": values("embed_tokens.weight", lambda t: t + 1),
}


@pytest.mark.parametrize("what", ONLY_SPECULATORS)
def test_what_the_public_form_cannot_say_is_refused_there_and_kept_in_the_other(
    base: Path, tmp_path: Path, what: str
) -> None:
    draft = changed(base, tmp_path / "draft", ONLY_SPECULATORS[what])
    with pytest.raises(ExportError, match=f"{what}.*--format speculators"):
        export(base, draft, tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))
    if what != "rope_theta":  # a draft of nested rope is a Laguna's
        assert export(base, draft, tmp_path / "out", "--format", "speculators") == 0


def test_norms_before_fc_are_kept_in_speculators_form(base: Path, tmp_path: Path) -> None:
    tiny_drafts.make_draft(tmp_path / "draft", base / "target", norm_before_fc=True)
    with pytest.raises(ExportError, match="norm_before_fc"):
        export(base, tmp_path / "draft", tmp_path / "out")
    assert export(base, tmp_path / "draft", tmp_path / "out", "--format", "speculators") == 0
    assert "input_norm.weight" in load_file(tmp_path / "out" / "speculators" / "model.safetensors")


def test_weights_that_float16_cannot_hold_are_refused(base: Path, tmp_path: Path) -> None:
    draft = changed(base, tmp_path / "draft", values("norm.weight", put(0, 1e6)))
    with pytest.raises(ExportError, match=r"norm\.weight has 1 values that are not finite in torch.float16"):
        export(base, draft, tmp_path / "out", "--dtype", "float16")


@pytest.mark.parametrize("name", TENSORS)
def test_the_public_table_asks_for_every_tensor(base: Path, tmp_path: Path, name: str) -> None:
    export(base, base / "draft", tmp_path, "--format", "eagle3")
    config, tensors = tiny_drafts.settings(tmp_path / "eagle3"), load_file(tmp_path / "eagle3" / "model.safetensors")
    check_public(config, tensors)
    with pytest.raises(ExportError, match=f"{name} is missing"):
        check_public(config, {other: tensor for other, tensor in tensors.items() if other != name})
    with pytest.raises(ExportError, match=f"{name} is "):
        check_public(config, tensors | {name: tensors[name][:-1]})
    with pytest.raises(ExportError, match=f"{name} is "):
        check_public(config, tensors | {name: tensors[name].double()})


@pytest.mark.parametrize("name", FIELDS)
def test_the_public_table_asks_for_every_field(base: Path, tmp_path: Path, name: str) -> None:
    export(base, base / "draft", tmp_path, "--format", "eagle3")
    config, tensors = tiny_drafts.settings(tmp_path / "eagle3"), load_file(tmp_path / "eagle3" / "model.safetensors")
    with pytest.raises(ExportError, match=f"{name} is missing"):
        check_public({other: value for other, value in config.items() if other != name}, tensors)
    with pytest.raises(ExportError, match=f"{name} is "):
        check_public(config | {name: object()}, tensors)


def test_a_file_that_changed_after_it_was_written_is_noticed(base: Path, tmp_path: Path) -> None:
    export(base, base / "draft", tmp_path, "--format", "eagle3")
    folder = tmp_path / "eagle3"
    tensors = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    form = Form("eagle3", tiny_drafts.settings(folder), tensors)
    check_export(folder, form)
    weights = folder / "model.safetensors"
    whole = bytearray(weights.read_bytes())
    whole[-3] ^= 1
    weights.write_bytes(whole)
    with pytest.raises(ExportError, match="is not what was written"):
        check_export(folder, form)
    weights.write_bytes(whole[:-64])
    with pytest.raises(ExportError, match="cannot be read back"):
        check_export(folder, form)


def test_a_checkpoint_that_is_not_what_training_wrote_is_refused(base: Path, tmp_path: Path) -> None:
    from pipeline.extract.digests import data_digest

    draft = changed(base, tmp_path / "draft", field())
    names = ("config.json", "model.safetensors")
    seal = {"format": 1, "files": {name: {"sha256": data_digest(draft / name)} for name in names}}
    (draft / "checkpoint.json").write_text(json.dumps(seal))
    assert export(base, draft, tmp_path / "out") == 0
    (draft / "config.json").write_text((draft / "config.json").read_text() + " ")
    with pytest.raises(CheckpointError, match=r"config\.json is not what was written"):
        export(base, draft, tmp_path / "out2")


def test_the_same_export_again_changes_nothing_and_another_is_refused(base: Path, tmp_path: Path) -> None:
    assert export(base, base / "draft", tmp_path) == 0
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.*")}
    assert export(base, base / "draft", tmp_path) == 0
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.*")} == before
    with pytest.raises(SettingsError, match="is there and differs"):
        export(base, base / "draft", tmp_path, "--dtype", "float32")
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.*")} == before
    assert export(base, base / "draft", tmp_path, "--dtype", "float32", "--overwrite") == 0
    assert tiny_drafts.settings(tmp_path / "eagle3")["torch_dtype"] == "float32"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["eagle3", "speculators"]


def test_what_a_killed_export_left_is_in_nobodys_way(base: Path, tmp_path: Path) -> None:
    (tmp_path / ".eagle3.tmp").mkdir()
    (tmp_path / ".eagle3.tmp" / "half").write_text("x")
    assert export(base, base / "draft", tmp_path) == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["eagle3", "speculators"]
    assert sorted(file.name for file in (tmp_path / "eagle3").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]


def test_a_store_of_another_target_is_refused(base: Path, tmp_path: Path) -> None:
    other = tiny_drafts.make_target(tmp_path / "other", seed=5)
    samples = [tiny_drafts.Sample("one", [3, 1, 2], [0, 1, 1])]
    store = tiny_drafts.make_store(tmp_path / "store", other, tmp_path / "other", samples)
    with pytest.raises(FitError, match=r"digests\.model"):
        export(base, base / "draft", tmp_path / "out", "--store", str(store))


def test_reports_that_cannot_be_read_are_told(base: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read --train-report"):
        export(base, base / "draft", tmp_path / "out", "--train-report", str(tmp_path / "no.json"))
    (tmp_path / "evaluation.json").write_text("{}")
    with pytest.raises(InputError, match=r"evaluation\.txt"):
        export(base, base / "draft", tmp_path / "out", "--evaluation", str(tmp_path / "evaluation.json"))
    with pytest.raises(InputError, match="no draft at"):
        export(base, tmp_path / "nowhere", tmp_path / "out")
