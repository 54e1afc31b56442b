"""A cache of its own for every test, and small stacks made from packages of a few kilobytes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.paths import CHECKOUT
from ops.stack.lockfile import Lock, read_lock
from ops.stack.model import STACKS, Stack, load
from tests.ops import small_stack


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; only uv's own, of what it has downloaded, is shared."""
    shared = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "uv"
    monkeypatch.setenv("UV_CACHE_DIR", os.environ.get("UV_CACHE_DIR", str(shared)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "eyas"


@pytest.fixture
def extract() -> Stack:
    """The real extract stack."""
    return load(STACKS / "extract")


@pytest.fixture
def cpu_lock(extract: Stack) -> Lock:
    return read_lock(extract.lock("cpu"))


@pytest.fixture
def copied_stack(tmp_path: Path) -> Path:
    """A copy of the extract stack with a patch series, free to be changed."""
    folder = tmp_path / "checkout" / "stacks" / "extract"
    shutil.copytree(STACKS / "extract", folder)
    small_stack.write_series(tmp_path / "checkout" / "patches" / "speculators-0.3.0", "speculators/_patched.py")
    return folder


@pytest.fixture
def make_small_stack(tmp_path: Path) -> Callable[[], Stack]:
    """Writes a stack of one tiny package with one patch, under tmp_path/checkout."""
    return lambda: small_stack.write(tmp_path / "checkout")


@pytest.fixture
def copied_checkout(tmp_path: Path) -> Path:
    """The host side in another place, so that its files can be changed."""
    root = tmp_path / "elsewhere with a space"
    root.mkdir()
    for name in ("eyas", "tasks.py"):
        shutil.copy2(CHECKOUT / name, root / name)
    shutil.copytree(CHECKOUT / "ops", root / "ops", ignore=shutil.ignore_patterns("__pycache__"))
    return root
