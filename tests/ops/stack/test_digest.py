"""A stack's digest: anything it pins changes it, nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ops.errors import LockError
from ops.stack.digest import stack_digest
from ops.stack.model import load


def change_last_digit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    at = max(i for i, byte in enumerate(content) if byte in b"0123456789abcdef")
    content[at] = ord("1") if content[at] != ord("1") else ord("2")
    path.write_bytes(bytes(content))


def series_of(folder: Path) -> Path:
    return folder.parent.parent / "patches" / "speculators-0.3.0"


def toml_value(folder: Path) -> None:
    toml = folder / "stack.toml"
    toml.write_text(
        toml.read_text(encoding="utf-8").replace("installed-gib = 8", "installed-gib = 9"), encoding="utf-8"
    )


def lock_byte(folder: Path) -> None:
    change_last_digit(folder / "cpu.lock")


def patch_word(folder: Path) -> None:
    patch = series_of(folder) / "0001-add-a-file.patch"
    patch.write_text(patch.read_text(encoding="utf-8").replace("not there", "not here"), encoding="utf-8")


def files_byte(folder: Path) -> None:
    files = series_of(folder) / "files.sha256"
    files.write_text("# Another word.\n" + files.read_text(encoding="utf-8"), encoding="utf-8")


@pytest.mark.parametrize("change", [toml_value, lock_byte, patch_word, files_byte])
def test_a_small_change_of_what_is_pinned_changes_it(copied_stack: Path, change: Callable[[Path], None]) -> None:
    before = stack_digest(load(copied_stack), "cpu")
    change(copied_stack)
    assert stack_digest(load(copied_stack), "cpu") != before


def test_the_other_accelerators_lock_does_not_change_it(copied_stack: Path) -> None:
    before = stack_digest(load(copied_stack), "cpu")
    change_last_digit(copied_stack / "cuda.lock")
    assert stack_digest(load(copied_stack), "cpu") == before


def test_a_comment_does_not_change_it(copied_stack: Path) -> None:
    before = stack_digest(load(copied_stack), "cpu")
    toml = copied_stack / "stack.toml"
    toml.write_text("# Another word.\n" + toml.read_text(encoding="utf-8"), encoding="utf-8")
    assert stack_digest(load(copied_stack), "cpu") == before


def test_cpu_and_cuda_differ(copied_stack: Path) -> None:
    stack = load(copied_stack)
    assert stack_digest(stack, "cpu") != stack_digest(stack, "cuda")


def test_without_a_lock_there_is_none(copied_stack: Path) -> None:
    (copied_stack / "cpu.lock").unlink()
    with pytest.raises(LockError):
        stack_digest(load(copied_stack), "cpu")
