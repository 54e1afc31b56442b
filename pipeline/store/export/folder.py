"""A folder that has its name only when it is whole."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.filesize import decimal

from pipeline.errors import NoSpaceError, SettingsError
from pipeline.files import held, sync


@contextmanager
def new_folder(output: Path, size: int) -> Iterator[Path]:
    """A folder to write into, renamed to its own name if the body ends well and removed if not.

    What a killed process left under the temporary name is removed by the next one.

    Args:
        output: must not exist.
        size: bytes that will be written, about.

    Raises:
        SettingsError: it exists, or cannot be written to.
        NoSpaceError: there is no room for so much, or none was left while it was written.
    """
    temporary = output.with_name(output.name + ".tmp")
    try:
        if output.exists():
            raise _exists(output)
        with held(temporary):
            if output.exists():  # another export was just writing it
                raise _exists(output)
            try:
                _empty(temporary)
                _check_space(output, size)
                yield temporary
                sync(temporary)
                temporary.rename(output)
                sync(output.parent)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise NoSpaceError(f"no space left on the disk of {output}: free some; nothing of it was kept") from error
        raise SettingsError(f"cannot write {output}: {error.strerror or error}: name another folder") from error


def _exists(output: Path) -> SettingsError:
    return SettingsError(f"{output} exists: name a folder that does not")


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _check_space(output: Path, size: int) -> None:
    free = shutil.disk_usage(output.parent).free
    if free < size:
        raise NoSpaceError(
            f"{output} takes about {decimal(size)} and {decimal(free)} are free: name a folder elsewhere"
        )
