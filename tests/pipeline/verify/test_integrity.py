"""Checksums and counts: whatever happens to a file of a finished store is noticed and named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.__main__ import main as pipeline_main
from pipeline.errors import InputError, StoreDamagedError
from pipeline.verify.command import main
from tests.pipeline.verify.conftest import Make


def flip(file: Path, at: float) -> None:
    """One bit, at a share of the file's length."""
    content = bytearray(file.read_bytes())
    content[int(at * (len(content) - 1))] ^= 1
    file.write_bytes(content)


def test_a_sound_store_passes_by_its_own_folder_and_by_its_runs(
    make_store: Make, capsys: pytest.CaptureFixture
) -> None:  # type: ignore[type-arg]
    store = make_store()
    assert main([str(store)]) == 0
    assert main([str(store.parent)]) == 0
    assert "8 captured + 0 rejected = 8 samples; 364 rows in 2 units" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("at", [0.0, 0.001, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("name", ["manifest.json", "shards/000000.json", "shards/000001.safetensors"])
def test_one_flipped_bit_in_any_file_is_damage(make_store: Make, name: str, at: float) -> None:
    store = make_store()
    flip(store / name, at)
    with pytest.raises(StoreDamagedError, match=Path(name).name.split(".")[0]):
        main([str(store)])


def test_a_flipped_bit_in_a_shard_is_traced_to_its_sample(make_store: Make, tmp_path: Path) -> None:
    store = make_store()
    flip(store / "shards/000001.safetensors", 0.5)
    with pytest.raises(StoreDamagedError):
        main([str(store), "--json", str(tmp_path / "report.json")])
    faults = json.loads((tmp_path / "report.json").read_text())["integrity"]["faults"]
    assert faults == [
        "000001.safetensors: sample 'g' is not what was written (content sha256)",
    ]


@pytest.mark.parametrize("name", ["shards/000000.json", "shards/000000.safetensors"])
def test_a_missing_file_is_damage(make_store: Make, name: str) -> None:
    store = make_store()
    (store / name).unlink()
    with pytest.raises(StoreDamagedError, match=Path(name).name):
        main([str(store)])


def test_a_missing_unit_breaks_the_account(make_store: Make) -> None:
    store = make_store()
    for file in (store / "shards").glob("000001.*"):
        file.unlink()
    with pytest.raises(StoreDamagedError, match="captured: the manifest says 8, the store has 4"):
        main([str(store)])


def test_a_line_more_in_rejected_jsonl_breaks_the_account(make_store: Make) -> None:
    store = make_store()
    with (store / "rejected.jsonl").open("a") as file:
        file.write('{"id": "x", "line": 9, "reason": "none"}\n')
    with pytest.raises(StoreDamagedError, match="rejected: the manifest says 0, the store has 1"):
        main([str(store)])


def test_an_exchanged_shard_is_damage_though_it_is_sound_in_itself(make_store: Make) -> None:
    store = make_store()
    shards = store / "shards"
    (shards / "000000.safetensors").write_bytes((shards / "000001.safetensors").read_bytes())
    with pytest.raises(StoreDamagedError, match=r"000000\.safetensors"):
        main([str(store)])


def test_the_exit_code_is_45_and_the_message_one_line(make_store: Make, capsys: pytest.CaptureFixture) -> None:  # type: ignore[type-arg]
    store = make_store()
    flip(store / "shards/000000.safetensors", 0.5)
    assert pipeline_main(["verify", str(store)]) == 45
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"eyas: {store} is not sound: 000000.safetensors")


def test_a_folder_that_is_no_store_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no store at"):
        main([str(tmp_path)])
