"""Which digests came before, without holding them in memory: ten million rows have some hundred MB of them."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import cast

DIGEST = 16
"""bytes; among a billion of them two are alike by chance in one run of 10^20"""
_NONE = bytes(DIGEST)
_FIRST = 1 << 16
"""slots to begin with"""


class Seen:
    """A set of digests in a table of a nameless file, whose pages the kernel may drop and read again.

    Open addressing: a digest lies in the slot that its first bytes name, or in the next free one behind.
    """

    def __init__(self, folder: Path) -> None:
        """Begin with none.

        Args:
            folder: where the file is, on a disk with room.
        """
        self._folder = folder
        self._count = 0
        self._table = self._make(_FIRST)

    def __contains__(self, digest: object) -> bool:
        at = self._slot(cast(bytes, digest))
        return self._table[at : at + DIGEST] != _NONE

    def add(self, digest: bytes) -> None:
        """Remember a digest.

        Raises:
            OSError: the disk is full.
        """
        at = self._slot(digest)
        if self._table[at : at + DIGEST] != _NONE:
            return
        self._table[at : at + DIGEST] = digest
        self._count += 1
        if 2 * self._count * DIGEST > len(self._table):
            self._double()

    def close(self) -> None:
        """Give the file back."""
        self._table.close()

    def _slot(self, digest: bytes) -> int:
        size = len(self._table)
        at = int.from_bytes(digest[:8], "little") * DIGEST % size
        while self._table[at : at + DIGEST] not in (_NONE, digest):
            at = (at + DIGEST) % size
        return at

    def _double(self) -> None:
        old = self._table
        self._table = self._make(2 * len(old) // DIGEST)
        for at in range(0, len(old), DIGEST):
            if (digest := old[at : at + DIGEST]) != _NONE:
                slot = self._slot(digest)
                self._table[slot : slot + DIGEST] = digest
        old.close()

    def _make(self, slots: int) -> mmap.mmap:
        with tempfile.TemporaryFile(dir=self._folder) as file:
            # Given to it now, so that a full disk is an error here and not a signal later.
            os.posix_fallocate(file.fileno(), 0, slots * DIGEST)
            return mmap.mmap(file.fileno(), slots * DIGEST)
