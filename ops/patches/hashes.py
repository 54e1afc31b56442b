"""`files.sha256`: for every file the series touches, its sha256 before the first patch and after the last.

Two lines a file, made to be read in a review; `absent` stands for "no such file", which an empty file is not:

    upstream <64 hex> package/module.py
    patched  <64 hex> package/module.py
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ops.patches.errors import MalformedSeriesError

FILE_NAME = "files.sha256"
_ABSENT = "absent"
_LINE = re.compile(r"(upstream|patched) +([0-9a-f]{64}|absent) (\S.*)")
_HEAD = "# sha256 of each touched file before the first patch and after the last; made by patch.new and patch.refresh\n"


def sha256(content: bytes | None) -> str | None:
    """Hex sha256 of a file's content; None where there is no file."""
    return None if content is None else hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class FileHashes:
    """A file's sha256 before and after the series; None where the file does not exist."""

    upstream: str | None
    patched: str | None


def between(before: Mapping[str, bytes | None], after: Mapping[str, bytes | None]) -> dict[str, FileHashes]:
    """The hashes of files whose contents are known before and after the series."""
    return {path: FileHashes(sha256(before[path]), sha256(after[path])) for path in sorted(before)}


def render(hashes: Mapping[str, FileHashes]) -> bytes:
    """The text of `files.sha256`."""
    lines = [
        f"{side:<8} {digest or _ABSENT} {path}\n"
        for path, pair in sorted(hashes.items())
        for side, digest in (("upstream", pair.upstream), ("patched", pair.patched))
    ]
    return (_HEAD + "".join(lines)).encode()


def load(folder: Path, touched: Iterable[str]) -> dict[str, FileHashes]:
    """Read `files.sha256` of a series.

    Args:
        folder: the series folder.
        touched: the paths that the patches change; the file must list exactly these.

    Raises:
        MalformedSeriesError: missing, unreadable, or it lists other files than the patches change.
    """
    sides = read(folder)
    wanted = set(touched)
    for path in sorted(wanted | {path for _, path in sides}):
        if path not in wanted or [other for _, other in sides].count(path) != 2:
            fault = "is not listed twice" if path in wanted else "is listed, but no patch changes it"
            raise MalformedSeriesError(f"{folder / FILE_NAME}: {path} {fault}; run patch.refresh")
    known = {path: FileHashes(sides["upstream", path], sides["patched", path]) for path in sorted(wanted)}
    check_changes(folder, known)
    return known


def check_changes(folder: Path, known: Mapping[str, FileHashes]) -> None:
    """Refuse a series that leaves a file as it was: whether it is applied could not be told.

    Raises:
        MalformedSeriesError: it does.
    """
    for path, pair in known.items():
        if pair.upstream == pair.patched:
            raise MalformedSeriesError(f"{folder}: the series as a whole leaves {path} as it was; drop those patches")


def read(folder: Path) -> dict[tuple[str, str], str | None]:
    """What `files.sha256` says, as (`upstream` or `patched`, path) to hash, with no regard to the patches.

    Raises:
        MalformedSeriesError: missing or unreadable.
    """
    file = folder / FILE_NAME
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MalformedSeriesError(f"{file} cannot be read ({error}); run patch.refresh") from None
    sides: dict[tuple[str, str], str | None] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if not match or (match[1], match[3]) in sides:
            fault = "given twice" if match else "neither 'upstream SHA256 PATH' nor 'patched SHA256 PATH'"
            raise MalformedSeriesError(f"{file} line {number}: {fault}; restore it, or delete it and run patch.refresh")
        sides[match[1], match[3]] = None if match[2] == _ABSENT else match[2]
    return sides
