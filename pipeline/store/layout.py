"""Names of a store's files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

FORMAT = 2
"""1 had a sha256 of each shard file as a whole, and records without a seal."""
MANIFEST = "manifest.json"
REJECTED = "rejected.jsonl"
SHARDS = "shards"
LOCK = ".lock"
WRITER_LOCK = ".writer.lock"
"""held by the process that writes shards, which may be an engine's worker that outlives a killed run for a moment"""
TEMPORARY = ".tmp"
"""Suffix of a file being written; the lock makes sure that nobody else is writing it."""

Buffer = bytes | memoryview


class Digest(Protocol):
    """What `hashlib.sha256()` returns."""

    def update(self, data: Buffer, /) -> None:
        """Add bytes."""

    def hexdigest(self) -> str:
        """The digest so far."""


def store_in(folder: Path) -> Path:
    """The store that a folder is, or that a run's folder has in it."""
    inner = folder / "store"
    return inner if not (folder / MANIFEST).exists() and (inner / MANIFEST).exists() else folder


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
