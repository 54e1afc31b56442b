"""Counting: a suite that did not run must not look like one that passed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ops.counts import Counts, judge, read_report

TESTS = """
import pytest
def test_passes(): pass
def test_passes_too(): pass
def test_fails(): assert False
@pytest.fixture
def broken(): raise RuntimeError
def test_errors(broken): pass
@pytest.mark.skip(reason="to be counted")
def test_is_skipped(): pass
"""


def run(folder: Path, text: str, *flags: str) -> tuple[Counts, int]:
    (folder / "test_it.py").write_text(text, encoding="utf-8")
    report = folder / "junit.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", f"--junit-xml={report}", str(folder), *flags]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return read_report(report), done.returncode


def test_a_report_of_pytest_is_counted(tmp_path: Path) -> None:
    assert run(tmp_path, TESTS) == (Counts(passed=2, failed=2, skipped=1), 1)


def test_a_file_that_cannot_be_imported_is_a_failure(tmp_path: Path) -> None:
    assert judge(*run(tmp_path, "import nothing_of_this_name\n")).failed == 1


def test_no_tests_are_a_failure(tmp_path: Path) -> None:
    assert judge(*run(tmp_path, "")) == Counts(failed=1)


def test_all_tests_skipped_are_a_failure(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.skip\ndef test_is_skipped(): pass\n"
    assert judge(*run(tmp_path, text)) == Counts(failed=1, skipped=1)


def test_a_keyword_may_leave_a_part_empty(tmp_path: Path) -> None:
    assert judge(*run(tmp_path, TESTS, "-k", "nothing_like_it"), may_be_empty=True) == Counts()


def test_a_breakdown_without_a_report_is_a_failure(tmp_path: Path) -> None:
    assert judge(read_report(tmp_path / "junit.xml"), 139) == Counts(failed=1)


def test_a_breakdown_after_tests_that_passed_is_a_failure() -> None:
    assert judge(Counts(passed=3), 1) == Counts(passed=3, failed=1)


@pytest.mark.parametrize(
    ("counts", "text"),
    [(Counts(3, 0), "3 passed, 0 failed"), (Counts(3, 1, 2), "3 passed, 1 failed, 2 skipped")],
)
def test_the_last_line_has_a_fixed_form(counts: Counts, text: str) -> None:
    assert str(counts) == text


def test_what_is_in_no_part_is_a_failure() -> None:
    command = [sys.executable, "tasks.py", "test", "--only", "docs/architecture.md"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed"
