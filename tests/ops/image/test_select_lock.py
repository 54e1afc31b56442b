"""Which entries of a lock a step of an image build installs, and what it is told on the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ops.image.select_lock import normalised, select
from ops.paths import CHECKOUT
from ops.stack.lockfile import parse_entries

LOCK = CHECKOUT / "stacks" / "extract" / "cuda.lock"


def names(text: str) -> list[str]:
    return [entry.name for entry in parse_entries(text, "selection")]


def test_without_conditions_it_is_the_whole_lock() -> None:
    text = LOCK.read_text(encoding="utf-8")
    assert names(select(text, set(), set())) == names(text)


def test_source_packages_are_left_out_and_found_alone() -> None:
    text = LOCK.read_text(encoding="utf-8")
    wheels, source = select(text, set(), {"flash-attn"}), select(text, {"flash-attn"}, set())
    assert sorted(names(wheels) + names(source)) == sorted(names(text))
    assert names(source) == ["flash-attn"]


def test_every_entry_keeps_its_hashes() -> None:
    text = LOCK.read_text(encoding="utf-8")
    assert parse_entries(select(text, set(), set()), "selection") == parse_entries(text, "lock")


def test_a_package_with_entries_for_several_machines_keeps_them_all() -> None:
    hashes = " \\\n    --hash=sha256:" + "0" * 64 + "\n"
    text = f"one==1 ; python_version < '3.11'{hashes}one==2 ; python_version >= '3.11'{hashes}other==1{hashes}"
    assert names(select(text, {"one"}, set())) == ["one", "one"]


def test_a_package_the_lock_lacks_ends_the_build(tmp_path: Path) -> None:
    script = CHECKOUT / "ops" / "image" / "select_lock.py"
    done = subprocess.run(
        [sys.executable, script, LOCK, "--only", "no-such"], capture_output=True, text=True, check=False
    )
    assert done.returncode
    assert done.stderr.strip() == "select_lock.py: the lock has no no-such"
    assert not done.stdout


@pytest.mark.parametrize(
    ("entry", "name"), [("Flash_Attn==1", "flash-attn"), ("a.b @ https://x", "a-b"), ("c>1;d", "c")]
)
def test_names_are_compared_as_package_indexes_do(entry: str, name: str) -> None:
    assert normalised(entry) == name
