from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ops.clean import clean, stale
from ops.local import environment_folder
from ops.stack.model import STACKS, load


@pytest.fixture
def envs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with this checkout's environment for extract, an older one, and what an installation left."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ours = environment_folder(load(STACKS / "extract"), "cpu")
    for folder in (ours, ours.parent / "extract-cpu-0000000000000000", ours.parent / ".making-x"):
        (folder / "lib").mkdir(parents=True)
        (folder / "lib" / "library.so").write_bytes(b"\0" * 8192)
    return ours.parent


def test_an_environment_of_an_older_lock_goes_and_this_checkouts_stays(envs: Path) -> None:
    ours = environment_folder(load(STACKS / "extract"), "cpu")
    assert clean() == 8192
    assert sorted(path.name for path in envs.iterdir()) == [".lock", ".making-x", ours.name]
    assert (ours / "lib" / "library.so").is_file()


def test_a_dry_run_removes_nothing(envs: Path) -> None:
    before = sorted(envs.iterdir())
    assert clean(dry_run=True) == 8192
    assert sorted(path for path in envs.iterdir() if path.name != ".lock") == before


def test_an_environment_that_a_process_runs_in_stays(envs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [old] = stale()
    shutil.copy("/bin/sleep", old / "sleep")
    running = subprocess.Popen([old / "sleep", "60"], stdout=subprocess.DEVNULL)
    try:
        assert clean() == 0
        assert (old / "sleep").is_file()
    finally:
        running.kill()
        running.wait()
    assert f"{old.name}: in use" in capsys.readouterr().out
    clean()
    assert not old.exists()


def test_there_may_be_no_cache_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    assert clean() == 0
