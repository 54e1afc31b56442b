"""One run at a time: an exclusive lock on a store that ends with the process that took it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from pathlib import Path

from pipeline.errors import SettingsError, StoreBusyError
from pipeline.store.layout import LOCK

WORKER_PATIENCE = 30.0
"""Seconds that an engine's worker, which sees that its run was killed, has to end."""

_held: set[int] = set()


class StoreLock:
    """An flock(2) on the store's lock file, taken on construction.

    The kernel releases it when the process dies, however it dies. It would live on in forked children, such as
    an engine's workers that survive a killed parent; they close their copy as soon as they are forked.
    """

    def __init__(self, store: Path, name: str = LOCK, patience: float = 0.0) -> None:
        """Take the lock.

        Args:
            store: an existing folder.
            name: of the lock's file in it.
            patience: seconds to wait for another process that holds it.

        Raises:
            StoreBusyError: another process holds it.
            SettingsError: the folder cannot be written to, or its file system has no locks.
        """
        try:
            self._handle: int | None = os.open(store / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise SettingsError(f"cannot write to {store}: {error.strerror}") from error
        try:
            _flock(self._handle, patience)
        except OSError as error:
            holder = os.pread(self._handle, 200, 0).decode(errors="replace").strip()
            os.close(self._handle)
            if error.errno == errno.EWOULDBLOCK:
                raise StoreBusyError(f"{store} is being written by {holder}: wait for it, or stop it") from error
            raise SettingsError(f"cannot lock {store}: {error.strerror}; use a file system with file locks") from error
        _held.add(self._handle)
        with contextlib.suppress(OSError):  # a full disk; who holds it is only for people
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        """Let go of the store; a second call does nothing."""
        if self._handle is not None and self._handle in _held:
            _held.discard(self._handle)
            fcntl.flock(
                self._handle, fcntl.LOCK_UN
            )  # also for a child forked so lately that it has not closed its copy
            os.close(self._handle)
        self._handle = None


def _flock(handle: int, patience: float) -> None:
    """Lock a file, trying for a while; raises the last BlockingIOError."""
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _close_inherited() -> None:
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_close_inherited)
