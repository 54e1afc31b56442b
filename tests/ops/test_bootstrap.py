"""The host environment: made once, whole or not there, and only out of what its lock pins."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.ops.small_stack import PACKAGE, locked_lines


@pytest.fixture
def checkout(copied_checkout: Path) -> Path:
    """A checkout whose host lock pins one tiny package, so that an installation takes seconds."""
    (copied_checkout / "ops" / "host.lock").write_text(locked_lines(PACKAGE), encoding="utf-8")
    return copied_checkout


def start(checkout: Path, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-E", str(checkout / "ops" / "bootstrap.py")],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def has_package(python: str) -> bool:
    return subprocess.run([python, "-c", f"import {PACKAGE}"], check=False).returncode == 0


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "host").iterdir())


def test_two_that_start_at_once_share_one_environment(checkout: Path, own_cache: Path) -> None:
    first, second = start(checkout), start(checkout)
    outputs = [process.communicate(timeout=300)[0].strip() for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0]
    assert outputs[0] == outputs[1]
    assert has_package(outputs[0])
    assert entries(own_cache) == [".lock", Path(outputs[0]).parent.parent.name]


def test_one_killed_half_way_leaves_nothing_that_the_next_one_trusts(checkout: Path, own_cache: Path) -> None:
    process = start(checkout)
    deadline = time.monotonic() + 60
    while not list((own_cache / "host").glob(".making-*/bin/python")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert any(name.startswith(".making-") for name in entries(own_cache)), "it was killed too late to leave anything"
    again = start(checkout)
    output, _ = again.communicate(timeout=300)
    assert again.returncode == 0
    assert has_package(output.strip())
    assert len(entries(own_cache)) == 2, "what the killed one left is still there"


def test_a_package_that_is_not_the_pinned_one_is_refused(checkout: Path, own_cache: Path) -> None:
    lock = checkout / "ops" / "host.lock"
    wrong = [
        line.split("sha256:")[0] + "sha256:" + "0" * 64 if "sha256:" in line else line.rstrip(" \\")
        for line in lock.read_text(encoding="utf-8").splitlines()
    ][:2]
    lock.write_text(" \\\n".join(wrong) + "\n", encoding="utf-8")
    process = start(checkout)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 24
    assert said.splitlines()[-1].startswith("eyas: a package is not the one that ")
    assert "Traceback" not in said
    assert entries(own_cache) == [".lock"]


def test_a_lock_without_hashes_is_refused(checkout: Path, own_cache: Path) -> None:
    (checkout / "ops" / "host.lock").write_text(f"{PACKAGE}==0.1.2\n", encoding="utf-8")
    process = start(checkout)
    process.communicate(timeout=300)
    assert process.returncode == 22
    assert entries(own_cache) == [".lock"]


def test_without_an_index_one_line_says_so(checkout: Path, own_cache: Path) -> None:
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}
    process = start(checkout, PIP_CONFIG_FILE=os.devnull, PIP_FIND_LINKS="", **nowhere)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 22
    assert "no package index with what ops/host.lock pins was reached" in said.splitlines()[-1]
    assert entries(own_cache) == [".lock"]


def test_an_environment_whose_python_is_gone_is_made_again(checkout: Path) -> None:
    python = start(checkout).communicate(timeout=300)[0].strip()
    Path(python).unlink()
    Path(python).symlink_to("/nonexistent/python3")
    assert start(checkout).communicate(timeout=300)[0].strip() == python
    assert has_package(python)


def test_a_cache_that_cannot_be_written_is_one_line(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("", encoding="utf-8")
    process = start(checkout, XDG_CACHE_HOME=str(tmp_path / "a file"))
    _, said = process.communicate(timeout=60)
    assert process.returncode == 22
    assert len(said.splitlines()) == 1
