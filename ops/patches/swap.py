"""Puts new contents in the place of a package's files: all of them or none, whenever the process is killed.

Every file is first written beside its place and synced, so running out of space changes nothing. Then a marker is
left in the dist-info folder, the files are renamed into place, and the marker is removed last. Whoever finds the marker
knows that a swap was begun and not ended. Renaming makes a new inode: installers hard-link files into a cache that
other environments share, so nothing is ever written in place.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ops.errors import DiskSpaceError, InstallError, UserError
from ops.patches import bytecode, record
from ops.patches.package import Installed

MARKER = "EYAS-PATCHING"
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


class NotWritableError(InstallError):
    """The package's files cannot be written."""


@contextmanager
def locked(installed: Installed) -> Iterator[None]:
    """Hold the package for this process, waiting for another that holds it."""
    handle = os.open(installed.dist_info, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:  # NFS locks no folders; there the caller's own care must do
            if error.errno not in {errno.EBADF, errno.ENOLCK, errno.ENOTSUP}:
                raise
        yield
    finally:
        os.close(handle)


def interrupted(installed: Installed) -> bool:
    """Whether a swap was begun and not ended."""
    return (installed.dist_info / MARKER).exists()


def swap(installed: Installed, contents: Mapping[str, bytes | None]) -> None:
    """Put `contents` in place, with a true RECORD and no bytecode of the changed modules.

    Args:
        installed: the package.
        contents: new content by path relative to site-packages; None deletes the file.

    Raises:
        DiskSpaceError: no space; nothing was changed.
        NotWritableError: no permission or a read-only disk; nothing was changed, or the marker is there.
    """
    places = {installed.site / path: content for path, content in contents.items()}
    stale = [pyc for place in places for pyc in bytecode.compiled(place)]
    gone = {pyc.relative_to(installed.site).as_posix() for pyc in stale}
    new_record = record.rewrite(installed.record.read_bytes(), contents, gone)
    marker = installed.dist_info / MARKER
    with _nothing_left_on_failure(installed) as written:
        for place, content in places.items():
            if content is not None:
                _stage(place, content, written)
        _stage(installed.record, new_record, written)
        _stage(marker, b"Patching was begun and not ended; run patch.apply again.\n", written)
        _rename(marker, written)
    try:
        for place, content in places.items():
            place.unlink(missing_ok=True) if content is None else _rename(place, written)
        for pyc in stale:
            pyc.unlink(missing_ok=True)
        for folder in {place.parent for place, content in places.items() if content is None}:
            _drop_empty_folders(folder, installed.site)
        _rename(installed.record, written)
        for folder in {path.parent for path in places if path.parent.is_dir()}:
            _sync(folder)
        marker.unlink()
        _sync(installed.dist_info)
    except OSError as error:
        raise NotWritableError(f"{installed.site}: stopped half-way ({error}); remove the cause, apply again") from None


def _temporary(place: Path) -> Path:
    return place.with_name(f".{place.name}.eyas-new")


def _stage(place: Path, content: bytes, written: list[Path]) -> None:
    """Write `content` beside `place`, synced, with its mode; folders that are missing are made."""
    missing = [folder for folder in place.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir()
        written.append(folder)
    temporary = _temporary(place)
    temporary.unlink(missing_ok=True)  # a killed process may have left it
    written.append(temporary)
    with temporary.open("xb") as file:
        file.write(content)
        file.flush()
        if place.exists():
            os.fchmod(file.fileno(), place.stat().st_mode & 0o7777)
        os.fsync(file.fileno())


def _rename(place: Path, written: list[Path]) -> None:
    _temporary(place).replace(place)
    written.remove(_temporary(place))
    if place.name == MARKER:
        _sync(place.parent)  # the marker must be on the disk before the first rename is


@contextmanager
def _nothing_left_on_failure(installed: Installed) -> Iterator[list[Path]]:
    """Collects what is written, and takes it away again when writing fails or is interrupted."""
    written: list[Path] = []
    resuming = interrupted(installed)
    try:
        yield written
    except BaseException as error:
        for path in reversed(written):
            path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        if not resuming:
            (installed.dist_info / MARKER).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _explained(installed, error) from None
        raise


def _explained(installed: Installed, error: OSError) -> UserError:
    kind = DiskSpaceError if error.errno in _NO_SPACE else NotWritableError
    return kind(f"{installed.site} cannot be written ({error}); nothing was changed")


def _drop_empty_folders(folder: Path, site: Path) -> None:
    """Remove a folder that a deletion has emptied, and its parents: Python would import it as a namespace package."""
    for place in (folder / "__pycache__", folder, *folder.parents):
        if place == site or (place.is_dir() and any(place.iterdir())):
            return
        if place.is_dir():
            place.rmdir()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
