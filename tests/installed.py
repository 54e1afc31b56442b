"""What the tests of an installed stack share: what it says of itself, and whether files are as their wheel had them."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any


def identity() -> Any:
    """The stack.json of the environment that runs this."""
    return json.loads((Path(sys.prefix) / "stack.json").read_text(encoding="utf-8"))


def altered(package: str) -> tuple[int, list[str]]:
    """How many Python files a distribution has, and those that differ from its RECORD."""
    files = [file for file in distribution(package).files or [] if file.suffix == ".py" and file.hash]
    return len(files), [str(file) for file in files if _sha256(Path(str(file.locate()))) != file.hash.value]


def _sha256(path: Path) -> str:
    digest = hashlib.sha256(path.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
