"""Rows out of the input files, each with its file and line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import InputError, SettingsError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Row:
    """A line that is not blank.

    Attributes:
        source: the file's name.
        line: its number in the file, from 1.
        content: its bytes.
    """

    source: str
    line: int
    content: bytes

    @property
    def default_id(self) -> str:
        """The id of a row that brings none."""
        return f"{Path(self.source).stem}:{self.line}"


def check_sources(paths: list[Path]) -> None:
    """Refuse files whose rows would get the same ids.

    Raises:
        SettingsError: two input files have the same name without their last suffix.
    """
    seen: dict[str, Path] = {}
    for path in paths:
        if path.stem in seen:
            raise SettingsError(f"--input {seen[path.stem]} and {path} would give rows the same ids: rename one")
        seen[path.stem] = path


def read_rows(path: Path) -> Iterator[Row]:
    """Read a file line by line; lines end at line feeds only, and blank ones are no rows.

    Raises:
        InputError: the file is missing or cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                content = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
                if content.strip():
                    yield Row(path.name, number, content)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give a JSONL file of conversations") from error


def file_sha256(path: Path) -> str:
    """Sha256 of a file's bytes, in hex.

    Raises:
        InputError: the file is missing or cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest()
