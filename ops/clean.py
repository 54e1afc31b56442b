"""`./eyas clean`: removes stack environments that this checkout has no use for.

A lock or patch that changes gives a stack another environment, and the one before stays in the cache: several GB each.
What a checkout at another commit removes, the next run here makes again.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from ops.atomic import TEMPORARY_PREFIX, exclusive
from ops.local import GIB, environment_folder
from ops.paths import cache_root
from ops.stack.model import STACKS, load
from ops.stack.stages import STACK_NAMES


def stale() -> list[Path]:
    """Environments in the cache that are none of this checkout's stacks, by name."""
    stacks = [load(STACKS / name) for name in STACK_NAMES]
    wanted = {environment_folder(stack, accelerator) for stack in stacks for accelerator in stack.accelerators}
    folder = cache_root() / "envs"
    return sorted(path for path in folder.glob("[!.]*") if path.is_dir() and path not in wanted)


def in_use(folder: Path) -> bool:
    """Whether a process has a library of it mapped: it runs in that environment."""
    mark = f"{folder.resolve()}/".encode()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if mark in maps.read_bytes():
                return True
        except OSError:
            continue  # it has ended, or is another user's, who has a cache of their own
    return False


def clean(*, dry_run: bool = False) -> int:
    """Remove them, but those that something runs in.

    Args:
        dry_run: only say what would be removed.

    Returns:
        Bytes removed, or that would be.
    """
    total = 0
    envs = cache_root() / "envs"
    with exclusive(envs, lambda: print("eyas: waiting for another eyas that is installing a stack", file=sys.stderr)):
        for folder in stale():
            if in_use(folder):
                print(f"{folder.name}: in use, stays", flush=True)
                continue
            size = _bytes_of(folder)
            total += size
            print(f"{folder.name}: {size / GIB:.1f} GiB{' would be' if dry_run else ''} removed", flush=True)
            if not dry_run:
                # Renamed first: killed in between, what is left is no environment, and the next installation sweeps it.
                away = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=envs))
                shutil.rmtree(folder.rename(away / folder.name))
                away.rmdir()
    print(f"{total / GIB:.1f} GiB in all; environments of this checkout stay", flush=True)
    return total


def _bytes_of(folder: Path) -> int:
    # Installed packages are hard links of what uv keeps on some systems: those free nothing.
    return sum(info.st_blocks * 512 for path in folder.rglob("*") if (info := path.lstat()).st_nlink == 1)
