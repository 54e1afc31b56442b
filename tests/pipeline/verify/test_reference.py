"""Against the reference: right states pass, and every known mistake is caught and called by its name.

All stores here are sealed with right checksums: only the comparison can tell.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pipeline.__main__ import main as pipeline_main
from pipeline.errors import DisagreementError, InputError, StoreMismatchError
from pipeline.store.reader import StoreReader
from pipeline.verify.command import main
from pipeline.verify.compare import choose
from pipeline.verify.reference import ReferenceModel
from tests.pipeline.verify.conftest import LAYERS, Captured, Make
from tests.tiny_targets import deepseek, kimi

DTYPES = ["float32", "bfloat16"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_right_states_agree(make_store: Make, dtype: str, tmp_path: Path) -> None:
    assert main([str(make_store(dtype)), "--reference", "--json", str(tmp_path / "report.json")]) == 0
    report = json.loads((tmp_path / "report.json").read_text())["reference"]
    assert report["samples"] == list("abcdefgh")
    assert [layer["output"] for layer in report["layers"]] == list(LAYERS)
    assert report["logits"]["same_top"] > 0.9


def swap_samples(states: Captured) -> None:
    states["c"], states["d"] = states["d"], states["c"]


def swap_two_rows(states: Captured) -> None:
    states["g"][[30, 70]] = states["g"][[70, 30]]


def swap_rows_of_samples(states: Captured) -> None:
    states["g"][40:60], states["h"][40:60] = states["h"][40:60].clone(), states["g"][40:60].clone()


def shift_rows(states: Captured) -> None:
    states["h"][:-1] = states["h"][1:].clone()


def shift_rows_behind_a_missing_block(states: Captured) -> None:
    states["g"][32:-16] = states["g"][48:].clone()


def scale(states: Captured) -> None:
    for tensor in states.values():
        tensor.copy_((tensor.float() * 1.01).to(tensor.dtype))


def scale_a_layer(states: Captured) -> None:
    for tensor in states.values():
        tensor[:, 2] = (tensor[:, 2].float() * 0.98).to(tensor.dtype)


def exchange_layers(states: Captured) -> None:
    for tensor in states.values():
        tensor[:, [0, 1]] = tensor[:, [1, 0]]


def blur(states: Captured) -> None:
    for tensor in states.values():
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0))
        noise *= 0.04 * torch.linalg.vector_norm(tensor.float(), dim=-1, keepdim=True) / 128**0.5
        tensor.add_(noise.to(tensor.dtype))


def zero(states: Captured) -> None:
    states["h"].zero_()


def garble_rows(states: Captured) -> None:
    states["h"][40:60] = torch.randn(20, len(LAYERS), 128, generator=torch.Generator().manual_seed(0)) * 5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("alter", "diagnosis"),
    [
        (swap_samples, r"sample '[cd]': swapped: all rows are those of sample '[cd]'"),
        (swap_two_rows, r"sample 'g': rows 30, 70 \(2 of 90\) are mixed up with other rows"),
        (swap_rows_of_samples, r"swapped: rows 40 to 59 \(20 of \d+\) are those of sample '[gh]'"),
        (shift_rows, r"sample 'h': shifted: rows .* are those 1 later"),
        (shift_rows_behind_a_missing_block, r"sample 'g': shifted: rows 32 to 73 \(42 of 90\) are those 16 later"),
        (scale, r"all samples: states are scaled by 1\.0[01]"),
        (scale_a_layer, r"all samples: layer 3 is scaled by 0\.9[78]"),
        (exchange_layers, "layer 1 holds the state after layer 2, layer 2 holds the state after layer 1"),
        (zero, "sample 'h': states are all zero"),
        (garble_rows, r"sample 'h': rows 40 to 59 \(20 of 120\) are wrong in no known way"),
    ],
)
def test_a_known_mistake_is_caught_and_named(
    make_store: Make, dtype: str, alter: Callable[[Captured], None], diagnosis: str
) -> None:
    store = make_store(dtype, alter)
    assert main([str(store)]) == 0, "the checksums are right"
    with pytest.raises(DisagreementError, match=diagnosis):
        main([str(store), "--reference"])


def test_right_states_in_fp8_agree_and_the_table_says_what_the_storage_lost(
    make_store: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    store = make_store("bfloat16", storage="fp8")
    assert main([str(store), "--reference"]) == 0
    shown = capsys.readouterr().out
    lost = max(layer["relative_error"] for layer in StoreReader(store).manifest["layers"])
    assert "noise: transformers in bfloat16, stored as fp8" in shown
    assert f"the storage is fp8: it lost {lost:.1%} of a layer at most" in shown
    assert 0.01 < lost < 0.03


def test_right_states_in_bf16_zstd_agree(make_store: Make) -> None:
    assert main([str(make_store("bfloat16", storage="bf16-zstd")), "--reference"]) == 0


@pytest.mark.parametrize(
    ("alter", "diagnosis"),
    [
        (swap_two_rows, "rows 30, 70"),
        (shift_rows, "shifted"),
        (scale_a_layer, r"layer 3 is scaled by 0\.9[78]"),
        (exchange_layers, "layer 1 holds the state after layer 2"),
    ],
)
def test_a_mistake_is_caught_and_named_in_fp8_too(
    make_store: Make, alter: Callable[[Captured], None], diagnosis: str
) -> None:
    store = make_store("bfloat16", alter, "fp8")
    assert main([str(store)]) == 0, "the checksums are right"
    with pytest.raises(DisagreementError, match=diagnosis):
        main([str(store), "--reference"])


def test_a_small_error_everywhere_shows_in_bfloat16_though_no_row_is_far_off(make_store: Make) -> None:
    with pytest.raises(DisagreementError, match="all samples are a little wrong, in no known way"):
        main([str(make_store("bfloat16", blur)), "--reference"])


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_applied_final_norm_is_named(make_store: Make, target: Path, dtype: str) -> None:
    model = ReferenceModel(target, dtype)

    def apply_norm(states: Captured) -> None:
        for tensor in states.values():
            tensor[:, -1] = model.normed(tensor[:, -1])

    with pytest.raises(DisagreementError, match="the last state has the final norm applied"):
        main([str(make_store(dtype, apply_norm)), "--reference"])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [-1, 1])
def test_layers_off_by_one_are_named(
    make_store: Make, target: Path, tokens: dict[str, list[int]], dtype: str, step: int
) -> None:
    model = ReferenceModel(target, dtype)

    def other_layers(states: Captured) -> None:
        for name, ids in tokens.items():
            states[name][:, :3] = model.states(ids, [layer + step for layer in LAYERS[:3]])

    with pytest.raises(DisagreementError, match=f"layer 3 holds the state after layer {3 + step}"):
        main([str(make_store(dtype, other_layers)), "--reference"])


def test_a_small_error_in_one_row_is_caught_in_float32(make_store: Make) -> None:
    def nudge(states: Captured) -> None:
        states["h"][77, 2] *= 1.002

    with pytest.raises(DisagreementError, match=r"layer 3, sample 'h': .*: row 77 \(1 of 120\) is wrong"):
        main([str(make_store("float32", nudge)), "--reference"])


def test_a_state_that_is_not_finite_is_caught(make_store: Make) -> None:
    def spoil(states: Captured) -> None:
        states["h"][3, 1, 7] = float("nan")

    with pytest.raises(DisagreementError, match="layer 2, sample 'h': relative error inf"):
        main([str(make_store("float32", spoil)), "--reference"])


def test_one_line_and_exit_code_46(make_store: Make, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_store("float32", scale)
    assert pipeline_main(["verify", str(store), "--reference", "--samples", "3"]) == 46
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"eyas: {store} is not what the target computes: layer ")


def test_samples_are_spread_from_the_shortest_to_the_longest(make_store: Make) -> None:
    reader = StoreReader(make_store())
    assert choose(reader, 3) == ["a", "e", "h"]
    assert choose(reader, 1) == ["a"]
    assert choose(reader, 100) == list("abcdefgh")


def test_another_target_is_refused(make_store: Make, tmp_path: Path) -> None:
    store = make_store()
    with pytest.raises(StoreMismatchError, match="made from another target"):
        main([str(store), "--reference", "--model-path", str(deepseek(tmp_path / "other"))])
    with pytest.raises(InputError, match=r"no config\.json"):
        main([str(store), "--reference", "--model-path", str(tmp_path)])


def test_hooks_give_transformers_own_hidden_states_and_the_last_before_the_norm(target: Path) -> None:
    model = ReferenceModel(target, "float32")
    ids = list(range(2, 60))
    states, logits = model.states_and_logits(ids, range(6))
    with torch.inference_mode():
        own = model._model(input_ids=torch.tensor([ids]), output_hidden_states=True)
    for layer in range(5):
        assert torch.equal(states[:, layer], own.hidden_states[layer + 1][0])
    assert torch.equal(model.normed(states[:, 5]), own.hidden_states[6][0])
    assert not torch.equal(states[:, 5], own.hidden_states[6][0])
    assert torch.equal(model.logits_from_last(states[:, 5]), logits)
    assert torch.equal(logits, own.logits[0])


def test_kimis_text_model_is_the_deepseek_model_under_its_prefix(tmp_path: Path) -> None:
    ids = list(range(2, 60))
    plain = ReferenceModel(deepseek(tmp_path / "deepseek"), "float32").states(ids, range(6))
    assert torch.equal(ReferenceModel(kimi(tmp_path / "kimi"), "float32").states(ids, range(6)), plain)


def test_a_checkpoint_that_lacks_weights_is_refused_and_not_filled_up_at_random(target: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(target / "model.safetensors")
    del weights["model.layers.3.mlp.up_proj.weight"]
    (tmp_path / "config.json").write_bytes((target / "config.json").read_bytes())
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"lacks 1 weights, such as 'model\.layers\.3\.mlp\.up_proj\.weight'"):
        ReferenceModel(tmp_path, "float32")


@pytest.mark.parametrize("content", ["{", '{"model_type": "nothing-known"}'])
def test_a_target_that_transformers_does_not_know_is_an_input_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match="transformers cannot load the target"):
        ReferenceModel(tmp_path, "float32")
