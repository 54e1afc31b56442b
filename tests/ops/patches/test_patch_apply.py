"""Applying: what comes out is right to the byte, and everything the package has of it is true."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from ops.patches.apply import apply
from ops.patches.errors import AlreadyAppliedError, PartlyAppliedError
from ops.patches.state import FileState, State
from ops.patches.status import status
from ops.patches.verify import verify

from .bird import Bird


def compiled(source: Path, mode: py_compile.PycInvalidationMode) -> Path:
    """Compile a module as Python itself would keep it, and return the file."""
    py_compile.compile(str(source), invalidation_mode=mode, doraise=True)
    return Path(importlib.util.cache_from_source(str(source)))


def test_every_file_is_what_the_series_leads_to(bird: Bird) -> None:
    site = bird.install()
    report = apply(bird.series(), site)
    assert bird.files(site) == bird.patched
    assert report.patches == ("0001-better-feather.patch", "0002-a-half.patch")
    assert not report.finished


def test_the_outcome_is_that_of_git_apply(bird: Bird, tmp_path: Path) -> None:
    series = bird.series()
    site, other = bird.install(), bird.install("other")
    for name, _, _ in bird.steps:
        subprocess.run(["git", "init", "-q"], cwd=other, check=True)
        subprocess.run(["git", "apply", "--whitespace=nowarn", series / name], cwd=other, check=True)
    apply(series, site)
    assert bird.files(site) == bird.files(other)


def test_record_lists_the_patched_files_and_only_them_differ(bird: Bird) -> None:
    site = bird.install()
    before = bird.record(site)
    apply(bird.series(), site)
    after = bird.record(site)
    truth = {bird.record_row(path, content) for path, content in bird.patched.items()}
    assert truth <= set(after)
    assert [row for row in before if not row.startswith("bird/")] == [
        row for row in after if not row.startswith("bird/")
    ]
    assert {row for row in after if row.startswith("bird/")} == truth
    assert len(after) == len(set(after))


def test_a_file_keeps_its_mode(bird: Bird) -> None:
    site = bird.install()
    (site / "bird/wing.py").chmod(0o750)
    apply(bird.series(), site)
    assert (site / "bird/wing.py").stat().st_mode & 0o7777 == 0o750


def test_a_hard_linked_cache_is_left_alone(bird: Bird, tmp_path: Path) -> None:
    site = bird.install()
    for name in ("bird/wing.py", "bird-1.2.0.dist-info/RECORD"):
        os.link(site / name, tmp_path / name.replace("/", "-"))
    record = (site / "bird-1.2.0.dist-info/RECORD").read_bytes()
    apply(bird.series(), site)
    assert (tmp_path / "bird-wing.py").read_bytes() == bird.upstream["bird/wing.py"]
    assert (tmp_path / "bird-1.2.0.dist-info-RECORD").read_bytes() == record


def test_bytecode_of_a_patched_module_cannot_survive(bird: Bird) -> None:
    site = bird.install()
    nest, untouched = site / "bird/nest.py", site / "bird/untouched.py"
    # "Unchecked" bytecode is run without a look at the source: the one sort a changed source does not outdate.
    untouched.write_bytes(b"VALUE = 3\n")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    kept = compiled(untouched, unchecked)
    compiled(nest, unchecked)
    record = site / "bird-1.2.0.dist-info/RECORD"
    row = f"bird/__pycache__/nest.{sys.implementation.cache_tag}.pyc,,"
    record.write_text(record.read_text() + row + "\n")
    apply(bird.series(), site)
    value = subprocess.run(
        [sys.executable, "-c", "import bird.nest; print(bird.nest.VALUE)"],
        env={"PYTHONPATH": str(site)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert value.stdout == "2\n"
    assert kept.exists()
    assert row not in bird.record(site)
    verify(bird.series(folder="again/bird-1.2.0"), site)


def test_status_names_the_state_the_files_and_the_patches(bird: Bird) -> None:
    series, site = bird.series(), bird.install()
    before = status(series, site)
    apply(series, site)
    after = status(series, site)
    assert (before.state, after.state) == (State.UNPATCHED, State.APPLIED)
    assert set(before.files.values()) == {FileState.UPSTREAM}
    assert set(after.files.values()) == {FileState.PATCHED}
    text = str(after)
    assert "0001-better-feather.patch" in text
    assert "better-feather\n" in text
    assert "in a few words" not in text


def test_applying_twice_says_so_and_changes_nothing(bird: Bird) -> None:
    series, site = bird.series(), bird.install()
    apply(series, site)
    before = bird.snapshot(site)
    with pytest.raises(AlreadyAppliedError):
        apply(series, site)
    assert bird.snapshot(site) == before


def test_verify_wants_the_series_applied(bird: Bird) -> None:
    series, site = bird.series(), bird.install()
    with pytest.raises(PartlyAppliedError, match="0 of 7 files are patched"):
        verify(series, site)
    apply(series, site)
    assert "2 patches applied" in verify(series, site)


@pytest.mark.parametrize("row", ["bird/wing.py", "bird/young/chick.py"])
def test_verify_catches_a_record_that_lost_a_row(bird: Bird, row: str) -> None:
    series, site = bird.series(), bird.install()
    apply(series, site)
    record = site / "bird-1.2.0.dist-info/RECORD"
    record.write_text("".join(f"{line}\n" for line in bird.record(site) if not line.startswith(row)))
    with pytest.raises(PartlyAppliedError, match=row):
        verify(series, site)


def test_verify_catches_a_record_that_lists_a_deleted_file(bird: Bird) -> None:
    series, site = bird.series(), bird.install()
    apply(series, site)
    record = site / "bird-1.2.0.dist-info/RECORD"
    record.write_text(record.read_text() + bird.record_row("bird/egg.py", bird.upstream["bird/egg.py"]) + "\n")
    with pytest.raises(PartlyAppliedError, match=r"bird/egg\.py"):
        verify(series, site)


@pytest.mark.parametrize("mode", list(py_compile.PycInvalidationMode))
def test_verify_catches_bytecode_of_the_upstream_source(bird: Bird, mode: py_compile.PycInvalidationMode) -> None:
    series, site = bird.series(), bird.install()
    source = site / "bird/wing.py"
    source.write_bytes(b"pass\n")
    pyc = compiled(source, mode)
    stale = pyc.read_bytes()
    source.write_bytes(bird.upstream["bird/wing.py"])
    apply(series, site)
    verify(series, site)
    pyc.parent.mkdir(exist_ok=True)
    pyc.write_bytes(stale)
    with pytest.raises(PartlyAppliedError, match="compiled from other source"):
        verify(series, site)


def test_fresh_bytecode_is_no_fault(bird: Bird) -> None:
    series, site = bird.series(), bird.install()
    apply(series, site)
    for mode in py_compile.PycInvalidationMode:
        assert compiled(site / "bird/nest.py", mode).exists()
        verify(series, site)
