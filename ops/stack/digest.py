"""A stack's digest: one hash over all that the stack pins for one accelerator."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ops.patches import series
from ops.stack.lockfile import read_lock
from ops.stack.model import ACCELERATORS, Stack

# Raised when the way the digest is made changes, so that two ways cannot meet on one digest.
FORMAT = 1


def patch_list(stack: Stack) -> list[dict[str, str]]:
    """Name and sha256 of every patch, in the order of the series; none where nothing is patched.

    Raises:
        UserError: the series is missing or malformed (exit codes 15, 16).
    """
    if stack.series is None:
        return []
    return [{"name": patch.name, "sha256": patch.sha256} for patch in series.load(stack.series).patches]


def stack_digest(stack: Stack, accelerator: str) -> str:
    """Hex sha256 over stack.toml's content for the accelerator, the lock's bytes, and the patch series.

    A comment in stack.toml changes nothing; one byte of a lock, of a patch or of files.sha256 does.

    Raises:
        StackError: the stack does not run on the accelerator.
        LockError: its lock is missing or malformed.
    """
    stack.accelerator(accelerator)
    read_lock(stack.lock(accelerator))
    shared: dict[str, Any] = {key: value for key, value in stack.content.items() if key not in ACCELERATORS}
    pinned = {
        "format": FORMAT,
        "stack": shared,
        accelerator: stack.content[accelerator],
        "lock": hashlib.sha256(stack.lock(accelerator).read_bytes()).hexdigest(),
        "patches": patch_list(stack),
    }
    if stack.series is not None:
        pinned["files"] = hashlib.sha256((stack.series / "files.sha256").read_bytes()).hexdigest()
    canonical = json.dumps(pinned, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
