"""What does not fit is refused in one line that names the field, with its exit code, and nothing is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline.errors import CheckpointError, FitError, InputError, SettingsError, UserError
from pipeline.store.manifest import read_manifest, write_manifest
from pipeline.train.command import main
from tests.train import making
from tests.train.conftest import arguments, stage

Weights = dict[str, torch.Tensor]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hidden_size": 8}, "hidden_size is 8 there, 16 here"),
        ({"num_layers": 5}, "num_layers is 5 there, 4 here"),
        ({"vocab_size": 30}, "vocab_size is 30 there, 24 here"),
        ({"digests": dict.fromkeys(("data", "stack", "plan", "model"), "1" * 64)}, r"digests\.model is 1{12}… there"),
        ({"output_layer_ids": (0, 1, 2)}, r"layer_ids\.output ends with 2, the target's last layer is 3"),
        ({"output_layer_ids": (0, 1, 3)}, r"layer_ids\.output has 3 layers, an EAGLE-3 draft reads 3 and learns from"),
    ],
)
def test_a_store_of_another_target_is_refused(target: Path, tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    form = {"layers": len(changes.get("output_layer_ids", making.LAYERS)), "hidden": changes.get("hidden_size", 16)}
    samples = [making.sample(str(number), [1, 2, 3, 4], [0, 1, 1, 1], **form) for number in range(8)]
    store = making.store(tmp_path / "store", target, samples, **changes)
    refused(FitError, f"{tmp_path}/store.*{told}", tmp_path, target, store)


def test_a_target_with_the_same_shape_and_other_weights_is_refused(store: Path, tmp_path: Path) -> None:
    other = making.target(tmp_path / "other", seed=1)
    refused(FitError, r"digests\.model is .*… there, .*… here", tmp_path, other, store)


def test_a_store_that_is_not_finished_is_refused(target: Path, tmp_path: Path) -> None:
    store = making.store(tmp_path / "store", target, [making.sample("a", [1, 2, 3], [0, 1, 1])], finish=False)
    refused(FitError, "status is incomplete, not complete: run extract again", tmp_path, target, store)


def test_normed_states_are_refused(target: Path, store: Path, tmp_path: Path) -> None:
    normed = tmp_path / "normed"
    shutil.copytree(store, normed)
    write_manifest(normed, read_manifest(normed) | {"final_norm_applied": True})
    refused(FitError, "final_norm_applied is true", tmp_path, target, normed)


def test_a_vocabulary_larger_than_the_targets_is_refused(target: Path, store: Path, tmp_path: Path) -> None:
    told = "--draft-vocab-size 25 is more than the target's vocabulary has, vocab_size 24"
    refused(FitError, told, tmp_path, target, store, draft_vocab_size=25)


@pytest.fixture(scope="module")
def draft(target: Path, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("draft")
    assert main(arguments(output, target=target, store=store, epochs=1)) == 0
    return (output / "best").resolve()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("eagle_aux_hidden_state_layer_ids", [1, 2, 4]),
        ("speculators_model_type", "peagle"),
        ("norm_before_fc", True),
        ("norm_output", True),
        ("norm_before_residual", True),
    ],
)
def test_a_draft_of_another_form_is_refused(
    draft: Path, target: Path, store: Path, tmp_path: Path, field: str, value: object
) -> None:
    given = copied(draft, tmp_path)
    change(given / "config.json", field, value)
    refused(FitError, rf"--init-from {given}: {field} is .* there, .* here", tmp_path, target, store, init_from=given)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", 32),
        ("vocab_size", 30),
        ("num_hidden_layers", 2),
        ("intermediate_size", 48),
        ("num_attention_heads", 4),
        ("num_key_value_heads", 1),
        ("head_dim", 4),
        ("model_type", "qwen3"),
    ],
)
def test_a_draft_with_layers_of_another_shape_is_refused(
    draft: Path, target: Path, store: Path, tmp_path: Path, field: str, value: object
) -> None:
    given = copied(draft, tmp_path)
    layers = json.loads((given / "config.json").read_bytes())["transformer_layer_config"]
    change(given / "config.json", "transformer_layer_config", layers | {field: value})
    told = rf"--init-from {given}: {field} is {value} there, {layers[field]} here"
    refused(FitError, told, tmp_path, target, store, init_from=given)


def test_a_draft_of_another_number_of_layers_than_asked_for_is_refused(
    draft: Path, target: Path, store: Path, tmp_path: Path
) -> None:
    told = "num_hidden_layers is 1 there, 2 here"
    refused(FitError, told, tmp_path, target, store, init_from=draft, draft_layers=2)


def test_a_draft_with_another_vocabulary_is_refused(draft: Path, target: Path, store: Path, tmp_path: Path) -> None:
    told = "draft_vocab_size is 12 there, 13 here"
    refused(FitError, told, tmp_path, target, store, init_from=draft, draft_vocab_size=13)


def shorter_d2t(weights: Weights) -> Weights:
    return weights | {"d2t": weights["d2t"][:-1].contiguous()}


def longer_t2d(weights: Weights) -> Weights:
    return weights | {"t2d": torch.cat([weights["t2d"], torch.tensor([False])])}


def other_t2d(weights: Weights) -> Weights:
    return weights | {"t2d": ~weights["t2d"]}


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (shorter_d2t, "draft_vocab_size is 12, its vocabulary map d2t has 11"),
        (longer_t2d, "its vocabulary map t2d has 25 tokens, the target 24"),
        (other_t2d, "its vocabulary maps d2t and t2d name different tokens"),
    ],
)
def test_a_draft_whose_map_is_another_one_is_refused(
    draft: Path, target: Path, store: Path, tmp_path: Path, harm: Callable[[Weights], Weights], told: str
) -> None:
    given = copied(draft, tmp_path)
    save_file(harm(load_file(draft / "model.safetensors")), given / "model.safetensors")
    refused(FitError, f"--init-from {given}: {told}", tmp_path, target, store, init_from=given)


def test_a_draft_without_weights_is_refused(draft: Path, target: Path, store: Path, tmp_path: Path) -> None:
    given = copied(draft, tmp_path)
    (given / "model.safetensors").write_bytes(b"")
    refused(CheckpointError, "cannot read .*model.safetensors", tmp_path, target, store, init_from=given)


def test_a_draft_that_lacks_a_tensor_is_refused(draft: Path, target: Path, store: Path, tmp_path: Path) -> None:
    given = copied(draft, tmp_path)
    weights = load_file(draft / "model.safetensors")
    del weights["fc.weight"]
    save_file(weights, given / "model.safetensors")
    refused(CheckpointError, "has no fc.weight", tmp_path, target, store, init_from=given)


def test_a_draft_with_a_tensor_of_another_shape_is_refused(
    draft: Path, target: Path, store: Path, tmp_path: Path
) -> None:
    given = copied(draft, tmp_path)
    weights = load_file(draft / "model.safetensors")
    save_file(weights | {"fc.weight": weights["fc.weight"][:, 16:].contiguous()}, given / "model.safetensors")
    told = rf"--init-from {given}: fc.weight is \[16, 32\] there, \[16, 48\] here"
    refused(FitError, told, tmp_path, target, store, init_from=given)


def test_a_folder_without_a_draft_is_refused(target: Path, store: Path, tmp_path: Path) -> None:
    refused(InputError, "no checkpoint at .*empty", tmp_path, target, store, init_from=tmp_path / "empty")


@pytest.mark.parametrize(
    ("content", "error", "told"),
    [
        ('{"hidden_size": 32}', SettingsError, "hidden_size is the target's, 16, not 32"),
        ('{"vocab_size": 30}', SettingsError, "vocab_size is the target's, 24, not 30"),
        ('{"intermediate_sise": 30}', SettingsError, r"not fields of a LlamaConfig: \['intermediate_sise'\]"),
        ('{"num_attention_heads": 3}', SettingsError, r"not a multiple of the number of attention heads \(3\)"),
        (
            '{"num_attention_heads": 4, "num_key_value_heads": 3}',
            SettingsError,
            "num_attention_heads 4 is no multiple of num_key_value_heads 3",
        ),
        ('{"intermediate_size": "wide"}', SettingsError, "'intermediate_size' expected int, got str"),
        ("[1]", SettingsError, r"not fields of a LlamaConfig: \[1\]"),
        ("{", InputError, "--draft-config .* is not JSON"),
    ],
)
def test_a_draft_config_that_does_not_fit_is_refused(
    target: Path, store: Path, tmp_path: Path, content: str, error: type[UserError], told: str
) -> None:
    file = tmp_path / "layers.json"
    file.write_text(content, encoding="utf-8")
    refused(error, told, tmp_path, target, store, draft_config=file)


def test_a_draft_config_that_is_not_there_is_refused(target: Path, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "nothing.json"
    refused(InputError, f"cannot read --draft-config {file}", tmp_path, target, store, draft_config=file)


@pytest.mark.parametrize(
    ("flags", "error", "told"),
    [
        ({"batch_tokens": 4}, SettingsError, "--batch-tokens 4 is less than the longest sample has"),
        ({"attention": "flash"}, SettingsError, "--attention flash: flash-attn has no mask"),
        ({"loss": "mse"}, SettingsError, "--loss: Unknown loss function 'mse'"),
        ({"loggers": "wandb"}, SettingsError, "--loggers knows tensorboard and trackio, not wandb"),
        ({"validation_share": 1.5}, SettingsError, "--validation-share must be above 0 and below 1"),
        ({"validation_share": 0.0001}, SettingsError, "--validation-share 0.0001 leaves none of 24 samples"),
        ({"store": "nowhere"}, InputError, "no store at nowhere"),
        ({"model_path": "./nowhere"}, InputError, "no target at nowhere"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_written(
    target: Path, store: Path, tmp_path: Path, flags: dict[str, Any], error: type[UserError], told: str
) -> None:
    refused(error, told, tmp_path, target, Path(flags.pop("store", store)), **flags)


def test_a_user_sees_one_line_and_the_exit_code(target: Path, store: Path, tmp_path: Path) -> None:
    for flags, code, told in (
        ({"draft_vocab_size": 25}, 60, "eyas: --draft-vocab-size 25 is more than"),
        ({"init_from": tmp_path}, 41, f"eyas: no checkpoint at {tmp_path}"),
    ):
        done = stage(arguments(tmp_path / "out", target=target, store=store, **flags))
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith(told)
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_draft_that_fits_goes_on_with_its_weights_and_its_vocabulary(
    draft: Path, target: Path, store: Path, tmp_path: Path
) -> None:
    assert main(arguments(tmp_path / "out", target=target, store=store, epochs=1, init_from=draft)) == 0
    begun, there = (load_file(folder / "model.safetensors") for folder in (tmp_path / "out" / "untrained", draft))
    assert begun.keys() == there.keys()
    assert all(torch.equal(begun[name], weight) for name, weight in there.items())


def refused(error: type[UserError], told: str, folder: Path, target: Path, store: Path, **flags: object) -> None:
    """The stage ends with this error, which is one line, and has written nothing."""
    before = sorted(folder.iterdir())
    with pytest.raises(error, match=told) as found:
        main(arguments(folder / "out", target=target, store=store, **flags))
    assert type(found.value) is error
    assert "\n" not in str(found.value)
    assert sorted(folder.iterdir()) == before


def copied(draft: Path, folder: Path) -> Path:
    return Path(shutil.copytree(draft, folder / "draft"))


def change(file: Path, field: str, value: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {field: value}), encoding="utf-8")
