"""What a provenance file says of the machine and the checkout: no names of hosts or users, no paths."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from ops import probes
from ops.paths import CHECKOUT

_TIMEOUT = 10
"""seconds for git"""


def facts() -> dict[str, Any]:
    """System, cores, memory and GPUs of this machine."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": sum(name.isdigit() for name in probes.gpus()),
        "gpu_driver": probes.driver(),
    }


def revision(checkout: Path = CHECKOUT) -> dict[str, Any] | None:
    """The git commit of a checkout and whether files differ from it; None where there is no git."""
    head = _git(checkout, "rev-parse", "HEAD")
    if head is None:
        return None
    return {"commit": head, "changed_files": bool(_git(checkout, "status", "--porcelain", "--untracked-files=no"))}


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        command = ["git", "-C", str(checkout), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
