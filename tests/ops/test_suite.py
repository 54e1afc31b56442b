"""Counting: a suite that did not run must not look like one that passed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ops import suite
from ops.beside import Command
from ops.counts import Counts, judge, read_report
from ops.errors import InstallError, PythonError
from ops.linters import Linter

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


def test_all_tests_skipped_are_right_only_where_they_may_be_and_nothing_broke() -> None:
    assert judge(Counts(skipped=2), 0, may_be_skipped=True) == Counts(skipped=2)
    assert judge(Counts(skipped=2), 1, may_be_skipped=True) == Counts(failed=1, skipped=2)
    assert judge(Counts(), 5, may_be_skipped=True) == Counts(failed=1)


def test_a_keyword_may_leave_a_part_empty(tmp_path: Path) -> None:
    assert judge(*run(tmp_path, TESTS, "-k", "nothing_like_it"), may_be_empty=True) == Counts()


def test_a_breakdown_without_a_report_is_a_failure(tmp_path: Path) -> None:
    assert judge(read_report(tmp_path / "junit.xml"), 139) == Counts(failed=1)


def test_a_report_that_a_full_disk_cut_off_is_a_failure(tmp_path: Path) -> None:
    for content in ("", "<testsuites><testsuite tests='3'"):
        (tmp_path / "junit.xml").write_text(content)
        assert judge(read_report(tmp_path / "junit.xml"), 1) == Counts(failed=1)


def test_a_breakdown_after_tests_that_passed_is_a_failure() -> None:
    assert judge(Counts(passed=3), 1) == Counts(passed=3, failed=1)


@pytest.mark.parametrize(
    ("counts", "text"),
    [(Counts(3, 0), "3 passed, 0 failed"), (Counts(3, 1, 2), "3 passed, 1 failed, 2 skipped")],
)
def test_the_last_line_has_a_fixed_form(counts: Counts, text: str) -> None:
    assert str(counts) == text


SKIPPED = "import pytest\ndef test_needs_an_engine(): pytest.skip('no engine')\n"


def part(folder: Path, name: str, text: str, *, needs_engine: bool = False) -> suite.Part:
    (folder / f"test_{name}.py").write_text(text, encoding="utf-8")
    python = Command([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", "-ra"], {})
    return suite.Part((str(folder / f"test_{name}.py"),), lambda: python, needs_engine)


@pytest.mark.parametrize(("ci", "counts"), [("", Counts(skipped=1)), ("1", Counts(failed=1, skipped=1))])
def test_without_an_engine_its_tests_are_skipped_aloud_and_fail_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], ci: str, counts: Counts
) -> None:
    monkeypatch.setenv("EYAS_CI", ci)
    needing = part(tmp_path, "it", SKIPPED, needs_engine=True)
    assert suite._run_parts({needing: needing.paths}, "") == counts
    out = capfd.readouterr().out
    assert "no engine" in out
    assert f"{needing}: 1 skipped" in out


def test_a_part_that_needs_no_engine_may_not_be_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EYAS_CI", raising=False)
    other = part(tmp_path, "it", SKIPPED)
    assert suite._run_parts({other: other.paths}, "") == Counts(failed=1, skipped=1)


def test_parts_side_by_side_are_all_counted_and_each_is_printed_whole(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = part(tmp_path, "one", TESTS)
    two = part(tmp_path, "two", "def test_two(): pass\n")
    assert suite._run_parts({one: one.paths, two: two.paths}, "") == Counts(passed=3, failed=2, skipped=1)
    out = capfd.readouterr().out
    for each in (one, two):
        (printed,) = [text for text in out.split("\n== ") if text.startswith(str(each))]
        assert printed.count("test session starts") == 1


@pytest.mark.parametrize(("ci", "counts"), [("", Counts(passed=1, skipped=1)), ("1", Counts(passed=1, failed=1))])
def test_a_stack_that_does_not_run_on_this_python_is_told_in_a_line_and_fails_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], ci: str, counts: Counts
) -> None:
    monkeypatch.setenv("EYAS_CI", ci)

    def too_old() -> Command:
        raise PythonError("stack train runs on Python >=3.11,<3.14, this is 3.10; install one")

    parts = [suite.Part(("tests/train",), too_old), part(tmp_path, "it", "def test_it(): pass\n")]
    assert suite._run_parts({one: one.paths for one in parts}, "") == counts
    out = capfd.readouterr().out
    assert f"== tests/train\n{'FAILED' if ci else 'skipped'}: stack train runs on Python >=3.11" in out


def test_the_tests_of_every_stack_run_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "ensure_dev", lambda: Path("/dev-tools"))
    monkeypatch.setattr(suite, "find_site_packages", lambda place: place / "site-packages")
    monkeypatch.setattr("ops.local.ensure", lambda stack: Path("/envs") / stack.name)
    monkeypatch.setattr("ops.demo.ensure_target", lambda _: Path("/targets/demo"))
    monkeypatch.setattr("ops.tokenizers.folder", lambda _: Path("/tokenizers"))
    found = {part.paths[0]: part.pytest() for part in suite.PARTS}
    assert found["tests/pipeline"].variables["EYAS_TOKENIZERS"] == "/tokenizers"
    for paths, name in (("tests/pipeline", "extract"), ("tests/train", "train"), ("tests/serve", "serve")):
        assert found[paths].line[0] == f"/envs/{name}/bin/python"
        assert found[paths].variables["EYAS_DEMO_TARGET"] == "/targets/demo"
    assert found["tests/ops"].line[0] == "/dev-tools/bin/python"


def test_tokenizers_that_cannot_be_installed_are_told_to_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> Path:
        raise InstallError("no registry here")

    monkeypatch.setattr("ops.tokenizers.folder", refuse)
    assert suite._tokenizers(Path("/dev-tools")) == {"EYAS_NO_TOKENIZERS": "no registry here"}


@pytest.mark.parametrize(("ci", "counts"), [("", Counts(skipped=1)), ("1", Counts(failed=1))])
def test_a_linter_that_cannot_run_says_so_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ci: str, counts: Counts
) -> None:
    monkeypatch.setenv("EYAS_CI", ci)
    assert suite._run_linter(Linter("compose", ["false"], missing="no docker command here")) == counts
    assert "no docker command here" in capsys.readouterr().out


def test_what_is_in_no_part_is_a_failure() -> None:
    command = [sys.executable, "tasks.py", "test", "--only", "docs/architecture.md"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed"


def test_what_tests_interrupt_can_be_interrupted_where_the_suite_runs_in_the_background(tmp_path: Path) -> None:
    # A shell without job control has SIGINT ignored in what it starts with &.
    text = "import signal\ndef test_it(): assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN\n"
    (tmp_path / "test_it.py").write_text(text, encoding="utf-8")
    script = (
        "import signal, sys; from ops import suite; from ops.beside import Command\n"
        "pytest = Command([sys.executable, '-m', 'pytest', '-q', '-c', '/dev/null', '-p', 'no:cacheprovider'], {})\n"
        "suite.PARTS = (suite.Part((sys.argv[1],), lambda: pytest),)\n"
        "suite.test([sys.argv[1]], '')"
    )
    line = f'{sys.executable} -c "$0" {tmp_path / "test_it.py"} & wait $!'
    done = subprocess.run(["sh", "-c", line, script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed", done.stdout + done.stderr
