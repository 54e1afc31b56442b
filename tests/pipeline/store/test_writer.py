"""A store is locked, resumable, takes only what fits its identity, and closes only when the account adds up."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.errors import (
    AccountError,
    EngineError,
    NoSpaceError,
    SettingsError,
    StoreDamagedError,
    StoreMismatchError,
)
from pipeline.store.manifest import is_complete, read_manifest
from pipeline.store.reader import StoreReader
from pipeline.store.records import CapturedSample, Rejection
from pipeline.store.sidecar import read_sidecar
from pipeline.store.writer import Store
from tests.pipeline.store.fake import HIDDEN, captured, identity


def files(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_a_finished_store_holds_what_the_contract_says(filled: Callable[..., Path]) -> None:
    folder = filled(units=2)
    assert files(folder) == [
        ".lock",
        ".writer.lock",
        "manifest.json",
        "rejected.jsonl",
        *("shards/000000.json", "shards/000000.safetensors", "shards/000001.json", "shards/000001.safetensors"),
    ]
    manifest = read_manifest(folder)
    assert manifest["status"] == "complete"
    assert manifest["layer_ids"] == {"output": [1, 2, 3, 5], "input": [2, 3, 4, 6]}
    assert manifest["final_norm_applied"] is False
    rows = sum(len(captured(n).input_ids) for n in range(6))
    trained = sum(sum(captured(n).loss_mask) for n in range(6))
    size = sum(file.stat().st_size for file in (folder / "shards").glob("*.safetensors"))
    assert manifest["counts"] == {
        "input": 6,
        "captured": 6,
        "rejected": 0,
        "units": 2,
        "rows": rows,
        "trained_tokens": trained,
        "shard_bytes": size,
    }


def test_the_store_digest_knows_neither_order_nor_sharding_nor_interruptions(tmp_path: Path, filled: Any) -> None:
    forward = read_manifest(filled("forward"))["store_digest"]
    assert read_manifest(filled("backward", order=-1))["store_digest"] == forward
    with Store.open_for_run(tmp_path / "one", identity()) as store:
        store.write_unit(0, [captured(n) for n in reversed(range(5))])
    with Store.open_for_run(tmp_path / "one", identity()) as store:
        store.write_unit(1, [captured(n) for n in range(5, 12)])
        assert store.finalise([], 12)["store_digest"] == forward


def test_rejected_samples_of_plan_and_units_are_listed_in_the_order_of_the_input(tmp_path: Path) -> None:
    with Store.open_for_run(tmp_path / "store", identity()) as store:
        store.write_unit(0, [captured(0)], [Rejection("nan", "non-finite state at layer 3", 2)])
        store.write_unit(1, [], [Rejection("all", "non-finite state at layer 5", 4)])
        manifest = store.finalise([Rejection(None, "broken JSON", 3)], 4)
        assert store.finished_units() == {0, 1}
        assert store.is_complete()
    assert not (tmp_path / "store/shards/000001.safetensors").exists()
    lines = [json.loads(line) for line in (tmp_path / "store/rejected.jsonl").read_text().splitlines()]
    assert [(line["line"], line["id"]) for line in lines] == [(2, "nan"), (3, None), (4, "all")]
    assert (manifest["counts"]["captured"], manifest["counts"]["rejected"]) == (1, 3)


@pytest.mark.parametrize("input_samples", [2, 4])
def test_an_account_that_does_not_add_up_is_no_finished_store(tmp_path: Path, input_samples: int) -> None:
    with Store.open_for_run(tmp_path / "store", identity()) as store:
        store.write_unit(0, [captured(0), captured(1)], [Rejection("x", "reason", 3)])
        with pytest.raises(AccountError, match=f"2 captured \\+ 1 rejected is not {input_samples}"):
            store.finalise([], input_samples)
    assert not is_complete(tmp_path / "store")


def test_a_sample_captured_twice_is_an_error_of_the_account(tmp_path: Path) -> None:
    with Store.open_for_run(tmp_path / "store", identity()) as store:
        store.write_unit(0, [captured(0)])
        store.write_unit(1, [captured(0)])
        with pytest.raises(AccountError, match="'sample-0' was captured more than once"):
            store.finalise([], 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "float32"}, 'dtype "bfloat16" there, "float32" now'),
        ({"output_layer_ids": (1, 2, 4, 5)}, r"layer_ids.output \[1, 2, 3, 5\] there, \[1, 2, 4, 5\] now"),
        ({"settings": {"tp_size": 2}}, "settings.tp_size 1 there, 2 now"),
        ({"settings": {}}, "settings.tp_size 1 there, null now"),
        (
            {"digests": {"data": "a" * 64, "model": "b" * 64, "stack": "f" * 64, "plan": "0" * 64}},
            "digests.data dddddddddddd… there, aaaaaaaaaaaa… now; digests.model eeeeeeeeeeee… there, bbbbbbbbbbbb… now",
        ),
    ],
)
def test_other_data_or_settings_are_refused_field_by_field(tmp_path: Path, changes: Any, message: str) -> None:
    with Store.open_for_run(tmp_path / "store", identity()) as store:
        store.write_unit(0, [captured(0)])
    with pytest.raises(StoreMismatchError, match=message):
        Store.open_for_run(tmp_path / "store", identity(**changes))
    with Store.open_for_run(tmp_path / "store", identity()) as store:
        assert store.finished_units() == {0}


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(SettingsError, match=r"is no store \('thesis.txt' is in it"):
        Store.open_for_run(tmp_path, identity())
    assert files(tmp_path) == ["thesis.txt"]


def test_leftovers_and_cut_off_shards_are_removed_and_their_units_done_again(filled: Callable[..., Path]) -> None:
    folder = filled()
    digest = read_manifest(folder)["store_digest"]
    shards = folder / "shards"
    os.truncate(shards / "000001.safetensors", 100)
    (shards / "000002.json").unlink()
    (shards / "000003.safetensors").unlink()
    (shards / "000004.safetensors.tmp").write_bytes(b"half")
    assert not is_complete(folder)
    with Store.open_for_run(folder, identity()) as store:
        assert store.finished_units() == {0}
        assert read_manifest(folder)["status"] == "incomplete"
        assert files(shards) == ["000000.json", "000000.safetensors"]
        assert sorted(store.discarded) == [
            *("000001.json", "000001.safetensors", "000002.safetensors", "000003.json", "000004.safetensors.tmp"),
        ]
        for unit in (1, 2, 3):
            store.write_unit(unit, [captured(3 * unit + i) for i in range(3)])
        assert store.finalise([], 12)["store_digest"] == digest


@pytest.mark.parametrize(
    "states",
    [
        torch.zeros(2, 4, HIDDEN, dtype=torch.bfloat16),
        torch.zeros(3, 3, HIDDEN, dtype=torch.bfloat16),
        torch.zeros(3, 4, HIDDEN + 1, dtype=torch.bfloat16),
        torch.zeros(3, 4, HIDDEN, dtype=torch.float32),
    ],
    ids=["a row missing", "a layer missing", "wider", "other dtype"],
)
def test_states_of_the_wrong_shape_or_dtype_never_reach_the_disk(tmp_path: Path, states: torch.Tensor) -> None:
    with Store.open_for_run(tmp_path / "store", identity()) as store:
        with pytest.raises(EngineError, match=r"'s' states .* not bfloat16 \[3, 4, 8\]"):
            store.write_unit(0, [CapturedSample("s", [1, 2, 3], [0, 0, 1], states)])
        assert files(tmp_path / "store/shards") == []


def test_a_full_disk_is_one_line_and_costs_only_the_unit_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open_for_run(tmp_path / "store", identity()) as store:
        store.write_unit(0, [captured(0)])

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(NoSpaceError, match="free some and run again"):
                store.write_unit(1, [captured(1)])
        assert files(tmp_path / "store/shards") == ["000000.json", "000000.safetensors"]


def test_the_manifest_notices_any_change(filled: Callable[..., Path]) -> None:
    file = filled() / "manifest.json"
    content = file.read_bytes()
    for at in range(0, len(content), 7):
        file.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        with pytest.raises(StoreDamagedError):
            read_manifest(file.parent)


def test_sidecars_count_non_finite_values_and_measure_norms_per_layer(tmp_path: Path) -> None:
    states = torch.zeros(2, 4, HIDDEN, dtype=torch.bfloat16)
    states[0, 0, :2] = torch.tensor([3.0, 4.0])
    states[0, 2, 0] = float("nan")
    states[1, 2, 1:3] = float("inf")
    states[1, 3, 0] = 3e38  # its square overflows float32: an infinite norm, but a finite value
    with Store.open_for_run(tmp_path / "store", identity()) as store:
        store.write_unit(0, [CapturedSample("s", [1, 2], [0, 1], states)])
    layers = read_sidecar(tmp_path / "store", 0).layers
    assert [(layer.output, layer.non_finite) for layer in layers] == [(1, 0), (2, 0), (3, 3), (5, 0)]
    assert (layers[0].norm_min, layers[0].norm_mean, layers[0].norm_max, layers[0].square_sum) == (0.0, 2.5, 5.0, 25.0)
    assert layers[2].norm_max is None


def test_bits_come_back_as_they_went_in(filled: Callable[..., Path]) -> None:
    reader = StoreReader(filled())
    for number in range(12):
        there, back = captured(number), reader.sample(f"sample-{number}")
        assert torch.equal(back.hidden_states.view(torch.int16), there.hidden_states.view(torch.int16))
        assert (back.input_ids.tolist(), back.loss_mask.tolist()) == (there.input_ids, there.loss_mask)
    assert [[sample.id for sample in shard] for shard in reader.shards()][1] == ["sample-3", "sample-4", "sample-5"]
