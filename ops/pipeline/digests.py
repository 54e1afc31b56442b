"""Digests of what steps read and write: files, folders, stores and targets.

Of a store only the manifest is looked into: it holds the digest of all states, made as they were written, and reading
terabytes again would take hours. Its shards must be there with the bytes the manifest counts. Everything else is hashed
whole; a file that was hashed before and whose size, times and place on the disk are the same is not read again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Kind = Literal["file", "folder", "store", "target"]
_MIB = 1 << 20
# Of a target's larger files size, first and last MiB count, as in a store's manifest (digests.model): hashing 540 GB
# takes as long as loading them. A change in the middle of one that keeps its size goes unseen.
_WHOLE = 16 * _MIB
# A file that changes twice within the clock's step looks the same: younger ones are not remembered.
_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True)
class Source:
    """Something on the disk that has a digest."""

    path: Path
    kind: Kind


@dataclass
class Digests:
    """Computes digests, and remembers those of files between runs."""

    known: dict[str, list[Any]] = field(default_factory=dict)
    """path -> size, mtime, ctime and inode when it was hashed, and its sha256"""

    def of(self, source: Source) -> str | None:
        """Hex digest, or None where the thing is missing, incomplete or unreadable."""
        try:
            return getattr(self, f"_{source.kind}")(source.path)  # type: ignore[no-any-return]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _file(self, path: Path) -> str:
        found = path.stat()
        seen = [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
        entry = self.known.get(str(path))
        if entry and entry[:-1] == seen:
            return str(entry[-1])
        digest = _sha256(path)
        if max(found.st_mtime_ns, found.st_ctime_ns) < time.time_ns() - _SETTLED_NS:
            self.known[str(path)] = [*seen, digest]
        return digest

    def _folder(self, path: Path) -> str:
        """Over names and contents; links count as what they point to."""
        rows = [[name, self._file(path / name)] for name in sorted(visible_files(path, "logs"))]
        return _of_rows(rows, path)

    def _store(self, path: Path) -> str:
        manifest = json.loads((path / "manifest.json").read_bytes())
        sizes = [file.stat().st_size for file in (path / "shards").glob("*.safetensors")]
        if manifest["status"] != "complete" or sum(sizes) != manifest["counts"]["shard_bytes"]:
            raise ValueError(path)
        return str(manifest["store_digest"])

    def _target(self, path: Path) -> str:
        (path / "config.json").stat()
        files = ((name, path / name) for name in sorted(visible_files(path, "__pycache__")))
        return _of_rows([[name, file.stat().st_size, _ends(file)] for name, file in files], path)


def visible_files(folder: Path, passed_over: str) -> Iterator[str]:
    """Names, relative with "/", of the files under a folder; hidden ones, and folders of one name, do not count."""
    for here, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".") and name != passed_over]
        for name in files:
            if not name.startswith("."):
                yield (Path(here) / name).relative_to(folder).as_posix()


def _of_rows(rows: list[list[Any]], folder: Path) -> str:
    if not rows:
        raise ValueError(folder)
    return hashlib.sha256(b"".join(json.dumps(row).encode() + b"\n" for row in rows)).hexdigest()


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_MIB):
            digest.update(chunk)
    return digest.hexdigest()


def _ends(path: Path) -> str:
    size = path.stat().st_size
    if size <= _WHOLE:
        return _sha256(path)
    with path.open("rb") as stream:
        digest = hashlib.sha256(stream.read(_MIB))
        stream.seek(size - _MIB)
        digest.update(stream.read(_MIB))
    return digest.hexdigest()
