"""A series of patches, read from its folder and checked before anything else happens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ops.patches import hashes, header, unified
from ops.patches.errors import MalformedSeriesError
from ops.patches.hashes import FileHashes, sha256
from ops.patches.header import Header
from ops.patches.unified import FileDiff

LIST_NAME = "series"
PATCH_NAME = re.compile(r"\d{4}-[a-z0-9][a-z0-9.-]*\.patch")
SEPARATOR = b"---\n"


@dataclass(frozen=True)
class Patch:
    """One patch file: its name, its bytes, and what they say."""

    name: str
    data: bytes
    header: Header
    diffs: tuple[FileDiff, ...]

    @property
    def sha256(self) -> str:
        """Hex sha256 of the whole file, header and all."""
        return sha256(self.data) or ""

    @property
    def header_text(self) -> bytes:
        """The bytes before the separator."""
        return self.data[: self.data.index(b"\n" + SEPARATOR) + 1]


@dataclass(frozen=True)
class Series:
    """The patches for one version of one package, in order, and the hashes they lead from and to."""

    folder: Path
    package: str
    version: str
    patches: tuple[Patch, ...]
    hashes: Mapping[str, FileHashes]

    @property
    def touched(self) -> dict[str, str]:
        """Every file that a patch changes, with the first patch that does."""
        return {diff.path: patch.name for patch in reversed(self.patches) for diff in patch.diffs}


def identity(folder: Path) -> tuple[str, str]:
    """Package and version from the folder's name, `<package>-<version>`.

    Raises:
        MalformedSeriesError: the name is not of that form.
    """
    match = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)-(\d[A-Za-z0-9.+!]*)", folder.absolute().name)
    if not match:
        raise MalformedSeriesError(f"{folder}: the name of a series folder is <package>-<version>")
    return match[1], match[2]


def load(folder: Path) -> Series:
    """Read and check a whole series.

    Raises:
        MalformedSeriesError: the list, the folder, a patch, a header or files.sha256 is not as it should be.
        EscapesPackageError: a path is absolute or has `..` in it.
    """
    series = load_patches(folder)
    if not series.patches:
        raise MalformedSeriesError(f"{folder / LIST_NAME} lists no patch; make one with patch.new")
    return replace(series, hashes=hashes.load(folder, series.touched))


def load_patches(folder: Path) -> Series:
    """Like `load`, for the developer's commands: the series may be empty and `files.sha256` is not read."""
    package, version = identity(folder)
    names = _listed(folder)
    others = {LIST_NAME, hashes.FILE_NAME, *names}
    for entry in sorted(folder.iterdir()):
        if entry.name not in others:
            raise MalformedSeriesError(f"{entry} is not listed in {LIST_NAME}; list it or remove it")
    return Series(folder, package, version, tuple(_patch(folder / name) for name in names), {})


def series_digest(folder: Path) -> list[tuple[str, str]]:
    """(name, hex sha256) of each patch, in order.

    Raises:
        MalformedSeriesError: as for `load`.
        EscapesPackageError: as for `load`.
    """
    return [(patch.name, patch.sha256) for patch in load(folder).patches]


def parse_patch(name: str, data: bytes) -> Patch:
    """A patch from its bytes: header, line `---`, diff.

    Raises:
        MalformedSeriesError: it is not of that form.
        EscapesPackageError: a path is absolute or has `..` in it.
    """
    head, mark, diff = data.partition(b"\n" + SEPARATOR)
    if not mark:
        raise MalformedSeriesError(f"{name}: no line '---' between header and diff")
    diffs = unified.parse(name, diff, first_line=head.count(b"\n") + 3)
    return Patch(name, data, header.parse(name, head + b"\n"), diffs)


def _patch(file: Path) -> Patch:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise MalformedSeriesError(f"{file} is listed, but cannot be read ({error.strerror})") from None
    return parse_patch(file.name, data)


def _listed(folder: Path) -> list[str]:
    file = folder / LIST_NAME
    try:
        lines = file.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise MalformedSeriesError(f"{file} cannot be read ({error}); it lists the patches, one a line") from None
    names: list[str] = []
    for number, line in enumerate(lines, start=1):
        name = line.partition("#")[0].strip()
        if not name:
            continue
        if not PATCH_NAME.fullmatch(name):
            raise MalformedSeriesError(f"{file} line {number}: {name!r} is not of the form NNNN-what-it-fixes.patch")
        if names and name[:4] <= names[-1][:4]:
            raise MalformedSeriesError(f"{file} line {number}: {name} does not come after {names[-1]}; number upwards")
        names.append(name)
    return names
