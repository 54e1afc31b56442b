"""Folders and files that are whole or not there, whoever else makes them at the same time and whenever one is killed.

A folder is built under a temporary name beside its place and renamed. One lock for each parent folder lets a second
process wait instead of doing the same work; the kernel drops the lock of a killed process, and whoever gets it next
removes what that one left. Standard library only: the bootstrap uses it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ops.errors import DiskSpaceError, InstallError

TEMPORARY_PREFIX = ".making-"


@contextmanager
def exclusive(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of `folder`; calls `waiting` once if another process holds it.

    Args:
        folder: made if it is not there.
        waiting: tells the user why nothing happens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_once(
    final: Path, build: Callable[[Path], None], *, whole: Callable[[Path], bool], waiting: Callable[[], None]
) -> Path:
    """Return `final`, built first if it is not there.

    Args:
        final: the folder's place; its name says all that its content depends on.
        build: fills the empty folder it is given. What it raises leaves nothing behind.
        whole: says whether the folder at `final` can be used; one that cannot is replaced.
        waiting: called when another process is building in the same parent folder.

    Raises:
        DiskSpaceError: the disk is full.
        InstallError: the place cannot be written.
    """
    if whole(final):
        return final
    try:
        with exclusive(final.parent, waiting):
            if not whole(final):
                _build_and_swap(final, build)
    except OSError as error:
        kind = DiskSpaceError if error.errno in {errno.ENOSPC, errno.EDQUOT} else InstallError
        raise kind(f"cannot write {error.filename or final}: {error.strerror}; free or change that place") from error
    return final


def _build_and_swap(final: Path, build: Callable[[Path], None]) -> None:
    # First, for the disk space that it may hold.
    _remove_leftovers(final.parent)
    temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=final.parent))
    try:
        # mkdtemp makes it private; what is made here is as shareable as the cache around it.
        temporary.chmod(0o755)
        build(temporary)
        if final.exists():
            final.rename(Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=final.parent)) / "broken")
        temporary.rename(final)
    finally:
        _remove_leftovers(final.parent)


def _remove_leftovers(folder: Path) -> None:
    for leftover in folder.glob(f"{TEMPORARY_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Replace the file at `path` in one step."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
