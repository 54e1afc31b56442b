"""Upstream sources for the developer's commands: a wheel or a folder with the package and its dist-info in it."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from ops.errors import InstallError, TruncatedError
from ops.patches.errors import EscapesPackageError
from ops.patches.package import Installed
from ops.patches.swap import MARKER

_NOT_SOURCE = shutil.ignore_patterns("__pycache__", MARKER)


class DestinationError(InstallError):
    """A folder that is to be made is there already."""


def upstream_from_wheel(wheel: Path, destination: Path) -> Path:
    """Unpack a wheel into a folder that is not there yet, and return the folder.

    Raises:
        ops.errors.TruncatedError: it is no whole zip file.
        EscapesPackageError: a name in it leads out of the folder.
        DestinationError: the folder is there.
    """
    check_absent(destination)
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith("/") or ".." in PurePosixPath(name).parts:
                    raise EscapesPackageError(f"{wheel}: it holds {name!r}, which leads out of its folder; get it anew")
            archive.extractall(destination)
    except (OSError, zipfile.BadZipFile) as error:
        raise TruncatedError(f"{wheel} is not a whole wheel ({error}); get it anew") from None
    return destination


@contextmanager
def opened(upstream: Path) -> Iterator[Path]:
    """The folder of an upstream that is a folder or a wheel."""
    if upstream.is_dir():
        yield upstream
        return
    with tempfile.TemporaryDirectory(prefix="eyas-") as folder:
        yield upstream_from_wheel(upstream, Path(folder) / "upstream")


def check_absent(destination: Path) -> None:
    """Refuse to write into a folder that has something in it.

    Raises:
        DestinationError: it has.
    """
    if destination.exists() and not (destination.is_dir() and not any(destination.iterdir())):
        raise DestinationError(f"{destination} is there already; remove it or name another folder")


def source_files(root: Path, top_levels: frozenset[str]) -> set[str]:
    """Paths, relative to `root`, of the package's files, bytecode left out."""
    found = set()
    for top in top_levels:
        if (root / top).is_file():
            found.add(top)
        for folder, folders, names in os.walk(root / top):
            folders[:] = [name for name in folders if name != "__pycache__"]
            found |= {(Path(folder) / name).relative_to(root).as_posix() for name in names}
    return found


def copy_package(installed: Installed, destination: Path) -> None:
    """Copy the package and its dist-info, bytecode left out, into a folder that is not there yet or is empty.

    Raises:
        DestinationError: the folder has something in it.
    """
    check_absent(destination)
    destination.mkdir(parents=True, exist_ok=True)
    for name in sorted(installed.top_levels | {installed.dist_info.name}):
        source = installed.site / name
        if source.is_dir():
            shutil.copytree(source, destination / name, ignore=_NOT_SOURCE)
        elif source.exists():
            shutil.copy2(source, destination / name)
