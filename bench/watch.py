"""How much memory a process takes, with all that come from it."""

from __future__ import annotations

import re
from pathlib import Path


def tree(pid: int) -> list[int]:
    """A process and all that come from it."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:  # it has just ended
        return []
    return [pid, *(below for child in children for below in tree(child))]


def memory(pid: int) -> tuple[int, int]:
    """Bytes of a process that the kernel cannot drop, and all of them; what is shared counts in parts."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # it has just ended
        return 0, 0
    sizes = {name: 1024 * int(size) for name, size in re.findall(r"^(Pss\w*):\s+(\d+) kB", text, re.MULTILINE)}
    return sizes.get("Pss_Anon", 0) + sizes.get("Pss_Shmem", 0), sizes.get("Pss", 0)
