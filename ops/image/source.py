"""The digest of the stages' code, by which an image older than the checkout is found out."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ops.paths import CHECKOUT


def pipeline_digest(pipeline: Path = CHECKOUT / "pipeline") -> str:
    """Hex sha256 over the name and content of every Python file of the stages."""
    digest = hashlib.sha256()
    for path in sorted(pipeline.rglob("*.py"), key=lambda path: path.relative_to(pipeline).as_posix()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(pipeline).as_posix()}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()
