"""The tools that lint and tests run with: an environment of its own, made once from tests/dev.lock."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from ops.atomic import make_once
from ops.local import install_lock, python_version
from ops.paths import CHECKOUT, cache_root

LOCK = CHECKOUT / "tests" / "dev.lock"


def ensure_dev() -> Path:
    """The environment's folder, installed first if it is not there.

    Raises:
        InstallError, ChecksumError: a tool cannot be installed.
    """
    key = hashlib.sha256(python_version().encode() + b"\n" + LOCK.read_bytes()).hexdigest()
    return make_once(
        cache_root() / "dev" / key[:16],
        _install,
        whole=lambda folder: os.access(folder / "bin" / "python", os.X_OK),
        waiting=lambda: print("eyas: waiting for another eyas that is installing", file=sys.stderr, flush=True),
    )


def _install(folder: Path) -> None:
    print("eyas: installing the test and lint tools (once)", file=sys.stderr, flush=True)
    install_lock(folder, LOCK, [])
