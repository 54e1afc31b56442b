"""Locking with uv, on packages of a few kilobytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ops.errors import ChecksumError, LockError
from ops.paths import CHECKOUT
from ops.stack.lock import make_lock, make_tools_lock
from ops.stack.lockfile import parse_entries
from ops.stack.model import Accelerator, SourceBuild, Stack

# mdurl 0.1.2 at the index: its sdist, which is not what an installer would take by itself, and its wheel.
SDIST = "bb413d29f5eea38f31dd4754dd7377d4465116fb207585f97bf925588687c1ba"
WHEEL = "84008a41e51615a49fc9966191ff91509e3c40b939176e643fd50a5c2196b8f8"


@pytest.fixture
def cpu(make_small_stack: Callable[[], Stack]) -> Accelerator:
    return make_small_stack().accelerator("cpu")


def source(sha256: str) -> SourceBuild:
    return SourceBuild(name="mdurl", version="0.1.2", sha256=sha256, requires=(), tools=("pip",), environment={})


def test_every_file_of_a_requirement_is_pinned(cpu: Accelerator, tmp_path: Path) -> None:
    lock = make_lock(cpu, tmp_path / "none")
    assert [(entry.name, entry.version) for entry in lock.entries] == [("mdurl", "0.1.2")]
    assert WHEEL in lock.entries[0].hashes
    assert lock.inputs_sha256 == cpu.inputs_digest()


def test_a_source_build_is_pinned_to_its_sdist_alone(cpu: Accelerator, tmp_path: Path) -> None:
    lock = make_lock(replace(cpu, requirements=(), build=(source(SDIST),)), tmp_path / "none")
    hashes = {entry.name: entry.hashes for entry in lock.entries}
    assert hashes["mdurl"] == (SDIST,)
    assert "pip" in hashes, "its build tool is missing"


def test_a_pin_the_index_does_not_have_is_refused(cpu: Accelerator, tmp_path: Path) -> None:
    with pytest.raises(ChecksumError, match="no file with sha256 0000"):
        make_lock(replace(cpu, requirements=(), build=(source("0" * 64),)), tmp_path / "none")


def test_an_excluded_package_is_left_out_and_an_override_wins(cpu: Accelerator, tmp_path: Path) -> None:
    part = replace(
        cpu, requirements=("markdown-it-py==4.0.0",), overrides=("markdown-it-py==3.0.0",), exclude=("mdurl",)
    )
    lock = make_lock(part, tmp_path / "none")
    assert [(entry.name, entry.version) for entry in lock.entries] == [("markdown-it-py", "3.0.0")]


def test_a_pin_that_still_fits_is_kept(cpu: Accelerator, tmp_path: Path) -> None:
    current = tmp_path / "cpu.lock"
    part = replace(cpu, requirements=("mdurl<0.1.2",))
    current.write_text(make_lock(part, current).text(), encoding="utf-8")
    lock = make_lock(replace(cpu, requirements=("mdurl",)), current)
    assert lock.entries[0].version == "0.1.1"


def test_requirements_that_nothing_satisfies_are_one_line(cpu: Accelerator, tmp_path: Path) -> None:
    with pytest.raises(LockError, match=r"\[cpu\] cannot be locked: .*mdurl") as caught:
        make_lock(replace(cpu, requirements=("mdurl>99",)), tmp_path / "none")
    assert "\n" not in str(caught.value)


def test_the_tools_locks_are_made_from_what_the_tools_ask_for(tmp_path: Path) -> None:
    made = tmp_path / "host.lock"
    made.write_bytes((CHECKOUT / "ops" / "host.lock").read_bytes())
    make_tools_lock(CHECKOUT / "ops" / "host.in", made)
    pinned = versions(made)
    assert {"invoke", "docker", "rich", "uv", "tomlkit", "requests", "packaging", "pip"} <= pinned.keys()
    assert pinned == versions(CHECKOUT / "ops" / "host.lock"), "run ./eyas stack.lock"


def versions(lock: Path) -> dict[str, str]:
    return {entry.name: entry.version for entry in parse_entries(lock.read_text(encoding="utf-8"), lock.name)}
