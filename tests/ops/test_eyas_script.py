"""`./eyas` itself: which Python it takes, what it says when there is none, and that it works from anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ops.paths import CHECKOUT


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH of its own, with no Python in it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "dirname", "readlink"):
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    return folder


def add_python(programs: Path, name: str, pretence: str) -> None:
    """A Python that runs `pretence` before what it is given with -c."""
    text = f'#!/bin/sh\nshift 2\nexec "{sys.executable}" -c "{pretence}; exec(__import__(\'sys\').argv[1])" "$@"\n'
    (programs / name).write_text(text, encoding="utf-8")
    (programs / name).chmod(0o755)


def run(programs: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(CHECKOUT / "eyas"), "--list"], env={"PATH": str(programs)}, capture_output=True, text=True, check=False
    )


def test_without_python_it_says_what_to_install(programs: Path) -> None:
    done = run(programs)
    assert done.returncode == 27
    assert done.stderr == (
        "eyas: Python 3.10 to 3.13 with venv is needed: no python3 in PATH; install one and run again\n"
    )


def test_an_old_python_is_named_with_its_version(programs: Path) -> None:
    add_python(programs, "python3", "import sys; sys.version_info = (3, 9, 2)")
    done = run(programs)
    assert done.returncode == 27
    assert "python3 is Python 3.9;" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_python_too_new_is_refused_too(programs: Path) -> None:
    add_python(programs, "python3", "import sys; sys.version_info = (3, 14, 0)")
    assert "python3 is Python 3.14;" in run(programs).stderr


def test_without_venv_it_names_the_package(programs: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    add_python(programs, "python3", "import sys; sys.modules['ensurepip'] = None")
    done = run(programs)
    assert done.returncode == 27
    assert f"apt-get install {version}-venv" in done.stderr


def test_a_shim_that_does_not_start_is_passed_over(programs: Path) -> None:
    (programs / "python3").write_text("#!/bin/sh\necho no such version >&2\nexit 127\n", encoding="utf-8")
    (programs / "python3").chmod(0o755)
    done = run(programs)
    assert "python3 does not start;" in done.stderr
    assert done.returncode == 27


def test_it_lists_the_commands_from_any_folder_and_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(CHECKOUT / "eyas")
    processes = [
        subprocess.Popen([str(tmp_path / "link"), "--list"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert outputs[0] == outputs[1]
    listed = {line.split()[0] for line in outputs[0].splitlines() if line.startswith("  ") and line.split()}
    assert {"extract", "prepare", "verify", "test", "lint", "doctor", "stack.pin-nightly", "patch.rebase"} <= listed


def test_nothing_of_the_folder_it_is_run_in_is_imported(tmp_path: Path) -> None:
    (tmp_path / "invoke.py").write_text("raise SystemExit('the wrong invoke')\n", encoding="utf-8")
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "__init__.py").write_text("raise SystemExit('the wrong ops')\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-E", str(CHECKOUT / "tasks.py"), "--list"],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
