"""Compiled files of a module: which there are, and whether they were made from the source that is there.

The layout of the 16 header bytes is that of PEP 552: magic, flags, then either the source's hash or its time and size.
"""

from __future__ import annotations

import glob
import importlib.util
from pathlib import Path

_BY_HASH = 0b01
_HEADER_SIZE = 16


def compiled(source: Path) -> list[Path]:
    """The files in `__pycache__` that belong to a source file, for any Python and any level of optimisation."""
    if source.suffix != ".py":
        return []
    return sorted((source.parent / "__pycache__").glob(f"{glob.escape(source.stem)}.*.pyc"))


def is_stale(pyc: Path, source: Path) -> bool:
    """Whether a compiled file was made from other source than what is there now, as far as its header tells."""
    header = pyc.read_bytes()[:_HEADER_SIZE]
    if len(header) < _HEADER_SIZE or not source.exists():
        return True
    flags, first, second = (header[at : at + 4] for at in (4, 8, 12))
    if int.from_bytes(flags, "little") & _BY_HASH:
        return first + second != importlib.util.source_hash(source.read_bytes())
    status = source.stat()
    made_from = (int.from_bytes(first, "little"), int.from_bytes(second, "little"))
    return made_from != (int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
