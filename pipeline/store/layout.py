"""Names of a store's files, and how each is written so that a kill or a power cut leaves it whole or absent."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipeline.errors import NoSpaceError, SettingsError
from pipeline.files import sync

FORMAT = 1
MANIFEST = "manifest.json"
REJECTED = "rejected.jsonl"
SHARDS = "shards"
LOCK = ".lock"
TEMPORARY = ".tmp"
"""Suffix of a file being written; the lock makes sure that nobody else is writing it."""

Buffer = bytes | memoryview


class Digest(Protocol):
    """What `hashlib.sha256()` returns."""

    def update(self, data: Buffer, /) -> None:
        """Add bytes."""

    def hexdigest(self) -> str:
        """The digest so far."""


@dataclass(frozen=True)
class Written:
    """A file just written."""

    bytes: int
    sha256: str


def shard_file(store: Path, unit: int) -> Path:
    """The tensors of a unit."""
    return store / SHARDS / f"{unit:06d}.safetensors"


def sidecar_file(store: Path, unit: int) -> Path:
    """The record of a unit; it makes the unit count as finished."""
    return store / SHARDS / f"{unit:06d}.json"


def unit_of(file: Path) -> int | None:
    """The unit a sidecar or shard file belongs to; None if it is neither."""
    match = re.fullmatch(r"([0-9]{6,})\.(safetensors|json)", file.name)
    return int(match[1]) if match else None


def write_synced(file: Path, pieces: Iterable[Buffer]) -> Written:
    """Write a file under a temporary name, sync it, rename it, and sync its folder.

    Args:
        file: the final name; what stood there is replaced in one step.
        pieces: the content, in order; written and hashed without being copied.

    Raises:
        NoSpaceError: the disk or the quota is full; the temporary file is removed.
        SettingsError: the folder cannot be written to.
    """
    temporary = file.with_name(file.name + TEMPORARY)
    digest, size = hashlib.sha256(), 0
    try:
        with temporary.open("wb", buffering=0) as stream:
            for piece in pieces:
                _write_all(stream.write, piece)
                digest.update(piece)
                size += memoryview(piece).nbytes
            os.fsync(stream.fileno())
        temporary.rename(file)
        sync(file.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise NoSpaceError(
                f"no space left on the disk of {file}: free some and run again, finished units are kept"
            ) from error
        raise SettingsError(f"cannot write {file}: {error.strerror}") from error
    return Written(size, digest.hexdigest())


def _write_all(write: Callable[[memoryview], int | None], piece: Buffer) -> None:
    """A single write(2) takes at most 2 GiB and may take less than asked."""
    view = memoryview(piece).cast("B")
    while view.nbytes:
        view = view[write(view) or 0 :]
