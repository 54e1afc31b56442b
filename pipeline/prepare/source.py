"""Rows out of plain files of lines, each with its file and line, and the ids of those that bring none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pipeline.errors import InputError, SettingsError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
COMPRESSED = (".gz", ".zst", ".zstd")


class Row(NamedTuple):
    """A row of an input.

    Attributes:
        source: the file's name.
        line: its number in the file, from 1: of the line, or of the row where a file has no lines.
        content: a JSON object, as bytes.
        form: the name of its format, where the user gave one.
        fault: why there is no content to read: reason and detail of a rejection.
    """

    source: str
    line: int
    content: bytes
    form: str | None = None
    fault: tuple[str, str] | None = None

    @property
    def default_id(self) -> str:
        """The id of a row that brings none."""
        return f"{stem(self.source)}:{self.line}"


@lru_cache(maxsize=64)
def stem(name: str) -> str:
    """A file's name without what says how it is written: `chats` of `chats.jsonl` and of `chats.jsonl.gz`."""
    path = PurePosixPath(name)
    if path.suffix in COMPRESSED and path.stem:
        path = path.with_suffix("")
    return str(path.with_suffix(""))


def check_sources(paths: list[Path]) -> None:
    """Refuse files whose rows would get the same ids.

    Raises:
        SettingsError: two input files have the same name without what says how they are written.
    """
    seen: dict[str, Path] = {}
    for path in paths:
        name = stem(path.name)
        if name in seen:
            raise SettingsError(f"--input {seen[name]} and {path} would give rows the same ids: rename one")
        seen[name] = path


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
