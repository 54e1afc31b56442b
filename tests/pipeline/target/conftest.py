"""The demo target's GGUF file, and transformers 5 beside the stack's own transformers 4."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from ops.atomic import make_once
from ops.paths import cache_root
from tests.pipeline.target import metadata
from tests.pipeline.target.oracle import Oracle

LOCK = Path(__file__).with_name("transformers5.lock")


@pytest.fixture(scope="session")
def gguf(demo_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return metadata.unpack(demo_package, tmp_path_factory.mktemp("gguf"))


@pytest.fixture(scope="session")
def oracle(gguf: Path) -> Oracle:
    return Oracle(gguf)


@pytest.fixture(scope="session")
def transformers5() -> Path:
    """A folder for PYTHONPATH, installed from the lock into the cache once."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    key = hashlib.sha256(LOCK.read_bytes() + python.encode()).hexdigest()[:16]
    install = [find_uv_bin(), "pip", "install", "--quiet", "--python", sys.executable, "--require-hashes", "--no-deps"]
    return make_once(
        cache_root() / "tests" / f"transformers5-{key}",
        lambda folder: subprocess.run([*install, "--target", str(folder), "-r", str(LOCK)], check=True) and None,
        whole=Path.is_dir,
        waiting=lambda: None,
    )
