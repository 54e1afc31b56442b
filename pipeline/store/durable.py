"""Writing a file so that a kill or a power cut leaves it whole or absent."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import NoSpaceError, SettingsError
from pipeline.files import sync
from pipeline.store.layout import TEMPORARY, Buffer

_PIECE = 32 << 20
"""Bytes after which the kernel is asked to start on the disk, which it would leave idle until the fsync: a shard of
470 MB on ext4 is on the disk in two thirds of the time. Shorter files are not worth it."""


@dataclass(frozen=True)
class Written:
    """A file just written."""

    bytes: int
    sha256: str


class NewFile:
    """A file under its temporary name: written, then committed to its own name or discarded.

    Every method raises `NoSpaceError` where the disk or the quota is full and `SettingsError` where the folder cannot
    be written to (any more); the temporary file is then removed.
    """

    def __init__(self, file: Path) -> None:
        """Create the temporary file.

        Args:
            file: the final name; what stands there is replaced in one step, by `commit`.
        """
        self._file = file
        self._temporary = file.with_name(file.name + TEMPORARY)
        with self._errors_told():
            self._stream = self._temporary.open("wb", buffering=0)
        self.bytes = 0
        self._let_go = 0
        """bytes that the kernel was asked to write back"""

    def write(self, piece: Buffer) -> None:
        """Append bytes; they are not copied."""
        view = memoryview(piece).cast("B")
        with self._errors_told():
            for start in range(0, view.nbytes, _PIECE):
                part = view[start : start + _PIECE]
                _write_all(self._stream.write, part)
                self.bytes += part.nbytes
                self._let_go_up_to(self.bytes // _PIECE * _PIECE)

    def commit(self) -> None:
        """Have the content on the disk, then the name, then the folder that holds the name."""
        with self._errors_told():
            os.fsync(self._stream.fileno())
            if self._let_go:  # terabytes of states must not push all else out of the page cache
                os.posix_fadvise(self._stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            self._stream.close()
            self._temporary.rename(self._file)
            sync(self._file.parent)

    def discard(self) -> None:
        """Remove the temporary file; after `commit` there is none."""
        self._stream.close()
        remove_if_possible(self._temporary)

    def _let_go_up_to(self, end: int) -> None:
        """Say that these bytes will not be read soon: Linux begins to write back dirty ones, and does not wait."""
        if end > self._let_go:
            os.posix_fadvise(self._stream.fileno(), self._let_go, end - self._let_go, os.POSIX_FADV_DONTNEED)
            self._let_go = end

    @contextmanager
    def _errors_told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if "_stream" in self.__dict__:
                self._stream.close()
            remove_if_possible(self._temporary)
            raise told(error, self._file) from error


def write_synced(file: Path, pieces: Iterable[Buffer]) -> Written:
    """Write a whole file, see `NewFile`; returns its size and sha256."""
    digest = hashlib.sha256()
    new = NewFile(file)
    try:
        for piece in pieces:
            new.write(piece)
            digest.update(piece)
        new.commit()
    except BaseException:
        remove_if_possible(file.with_name(file.name + TEMPORARY))
        raise
    return Written(new.bytes, digest.hexdigest())


def told(error: OSError, file: Path) -> NoSpaceError | SettingsError:
    """The user's error for one that the operating system gave while a file was written."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return NoSpaceError(f"no space left on the disk of {file}: free some and run again, finished units are kept")
    return SettingsError(
        f"cannot write {file}: {error.strerror}: make its folder writable and run again, finished units are kept"
    )


def remove_if_possible(file: Path) -> None:
    """Remove a file that may be gone, in a folder that may have become read-only: the next run removes it then."""
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        if error.errno not in {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EIO}:
            raise


def _write_all(write: Callable[[memoryview], int | None], piece: Buffer) -> None:
    """A single write(2) takes at most 2 GiB and may take less than asked."""
    view = memoryview(piece).cast("B")
    while view.nbytes:
        view = view[write(view) or 0 :]
