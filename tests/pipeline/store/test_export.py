"""What is exported is what the store holds, in the form that the other side's own code reads, whole or not at all."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from collections import namedtuple
from pathlib import Path
from typing import get_args

import datasets
import pytest
import torch
from safetensors.torch import load_file
from speculators.train.data import Eagle3SampleFileDataset

from pipeline.errors import InputError, NoSpaceError, SettingsError, StoreDamagedError, UserError
from pipeline.store.export import Form, export, stream, write
from pipeline.store.writer import Store
from tests.pipeline.store.fake import HIDDEN, captured, identity

FORMS = get_args(Form)
SAMPLES = range(7)


@pytest.fixture(params=["bf16", "bf16-zstd"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with Store.open_for_run(tmp_path / "store", identity(storage=request.param)) as store:
        store.write_unit(0, [captured(number) for number in range(4)])
        store.write_unit(1, [captured(number) for number in range(4, 7)])
        store.finalise([], 7)
    return tmp_path / "store"


def test_speculators_0_3_0_reads_its_export_with_its_own_data_set(store: Path, tmp_path: Path) -> None:
    assert export(store, tmp_path / "out", "speculators-0.3.0") == 7
    files = [str(tmp_path / f"out/data_{number}.pt") for number in SAMPLES]
    assert sorted(str(file) for file in (tmp_path / "out").iterdir()) == files
    read = Eagle3SampleFileDataset(100, file_list=files, hidden_states_dtype=torch.bfloat16)
    for number in SAMPLES:
        expected, sample = captured(number), read[number]  # its rows are shifted against each other by one
        assert torch.equal(sample["hidden_states"], expected.hidden_states[:-1, :3].flatten(1))
        assert torch.equal(sample["verifier_last_hidden_states"], expected.hidden_states[1:, 3])
        assert sample["input_ids"].tolist() == expected.input_ids[1:]
        assert sample["loss_mask"].tolist() == expected.loss_mask[1:]
        assert sample["lengths"].tolist() == [len(expected.input_ids) - 1]


def test_a_file_for_0_3_0_holds_what_its_generation_writes_and_no_more(store: Path, tmp_path: Path) -> None:
    export(store, tmp_path / "out", "speculators-0.3.0")
    file = tmp_path / "out/data_5.pt"
    sample, expected = torch.load(file, weights_only=True), captured(5)
    assert list(sample) == ["input_ids", "hidden_states", "loss_mask"]
    assert (sample["input_ids"].dtype, sample["loss_mask"].dtype) == (torch.int64, torch.int64)
    assert [layer.shape for layer in sample["hidden_states"]] == [(len(expected.input_ids), HIDDEN)] * 4
    assert file.stat().st_size < expected.hidden_states.nbytes + 16 * len(expected.input_ids) + 4096


def test_the_export_for_0_9_0_is_a_data_set_of_tensors_with_a_file_of_states_for_each_row(
    store: Path, tmp_path: Path
) -> None:
    assert export(store, tmp_path / "out", "speculators-0.9.0") == 7
    rows = datasets.load_from_disk(str(tmp_path / "out"))
    assert rows.column_names == ["input_ids", "loss_mask", "seq_len"]
    assert list(rows.with_format(None)["seq_len"]) == [len(captured(number).input_ids) for number in SAMPLES]
    for number in SAMPLES:
        expected, row = captured(number), rows[number]
        tensors = load_file(tmp_path / f"out/hidden_states/hs_{number}.safetensors")
        assert torch.equal(tensors["token_ids"], row["input_ids"])
        assert row["input_ids"].tolist() == expected.input_ids
        assert row["loss_mask"].tolist() == expected.loss_mask
        assert torch.equal(tensors["hidden_states"], expected.hidden_states)
        assert {name: tensor.dtype for name, tensor in tensors.items()} == {
            "token_ids": torch.int64,
            "hidden_states": torch.bfloat16,
        }
    assert len(list((tmp_path / "out/hidden_states").iterdir())) == 7
    assert not list((tmp_path / "out").glob("*.tmp"))


def test_a_stream_yields_what_the_files_hold_and_writes_nothing(store: Path, tmp_path: Path) -> None:
    export(store, tmp_path / "old", "speculators-0.3.0")
    export(store, tmp_path / "new", "speculators-0.9.0")
    before = sorted(tmp_path.rglob("*"))
    for number, sample in enumerate(stream(store, "speculators-0.3.0")):
        there = torch.load(tmp_path / f"old/data_{number}.pt", weights_only=True)
        assert sample.keys() == there.keys()
        assert all(map(torch.equal, sample["hidden_states"], there["hidden_states"]))
        assert torch.equal(sample["input_ids"], there["input_ids"])
        assert torch.equal(sample["loss_mask"], there["loss_mask"])
    rows = datasets.load_from_disk(str(tmp_path / "new"))
    for number, sample in enumerate(stream(store, "speculators-0.9.0")):
        files = load_file(tmp_path / f"new/hidden_states/hs_{number}.safetensors")
        for name, there in (files | rows[number]).items():
            assert torch.equal(torch.as_tensor(sample[name]), there)
    assert number == 6
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("form", FORMS)
def test_an_existing_folder_is_refused_and_left_alone(store: Path, tmp_path: Path, form: Form) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.txt").write_text("years of work")
    with pytest.raises(SettingsError, match="out exists: name a folder that does not"):
        export(store, tmp_path / "out", form)
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["thesis.txt"]
    assert not (tmp_path / "out.tmp").exists()


@pytest.mark.parametrize("form", FORMS)
def test_damage_found_on_the_way_leaves_no_folder(store: Path, tmp_path: Path, form: Form) -> None:
    file = store / "shards/000001.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(StoreDamagedError, match="000001"):
        export(store, tmp_path / "out", form)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_too_small_a_disk_is_seen_before_anything_is_written(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = sum(captured(number).hidden_states.nbytes for number in SAMPLES)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("Usage", "free")(needed))
    monkeypatch.setattr(write, "_write", lambda *_: pytest.fail("it writes"))
    with pytest.raises(NoSpaceError, match=r"takes about .* are free"):
        export(store, tmp_path / "out", "speculators-0.3.0")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize(("number", "kind"), [(28, NoSpaceError), (5, SettingsError)])
def test_a_disk_that_fills_up_or_breaks_leaves_no_folder(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[UserError]
) -> None:
    written: list[Path] = []

    def failing(file: Path) -> None:
        written.append(file)
        if len(written) == 3:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(write, "sync", failing)
    with pytest.raises(kind, match="out"):
        export(store, tmp_path / "out", "speculators-0.3.0")
    assert len(written) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def killed_at_the_fifth_sample(store: Path, output: Path, form: Form) -> None:
    def sync(file: Path) -> None:
        if "4" in file.name:
            os.kill(os.getpid(), signal.SIGKILL)

    write.sync = sync  # type: ignore[attr-defined]
    export(store, output, form)


@pytest.mark.parametrize("form", FORMS)
def test_a_killed_export_is_not_taken_for_a_finished_one_and_the_next_is_whole(
    store: Path, tmp_path: Path, form: Form
) -> None:
    arguments = (store, tmp_path / "out", form)
    process = multiprocessing.get_context("fork").Process(target=killed_at_the_fifth_sample, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    export(store, tmp_path / "out", form)
    export(store, tmp_path / "again", form)
    out, again = (
        {file.relative_to(where) for file in where.rglob("*")} for where in (tmp_path / "out", tmp_path / "again")
    )
    assert out == again
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "out", "store"]


def test_an_unfinished_store_is_not_exported(tmp_path: Path) -> None:
    with Store.open_for_run(tmp_path / "store", identity()) as store:
        store.write_unit(0, [captured(0)])
    with pytest.raises(InputError, match="not finished"):
        export(tmp_path / "store", tmp_path / "out", "speculators-0.3.0")
    assert not (tmp_path / "out").exists()
