"""Folders that have their names only when they are whole, and never in the place of another by accident."""

from __future__ import annotations

import errno
import filecmp
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import NoSpaceError, SettingsError
from pipeline.files import held, sync


@contextmanager
def staged(output: Path, names: tuple[str, ...], *, overwrite: bool) -> Iterator[dict[str, Path]]:
    """New folders of these names to write into; they take their places in `output` if the body ends well.

    What a killed process left is removed by the next one.

    Args:
        output: made if missing; of two processes the second waits.
        names: of the folders.
        overwrite: replace folders that are there with something else in them; those with the same files stay.

    Yields:
        By name, an empty folder under a temporary name.

    Raises:
        SettingsError: another export is there, or the folder cannot be written to.
        NoSpaceError: the disk is full.
    """
    temporary = {name: output / f".{name}.tmp" for name in names}
    try:
        with held(output):
            try:
                for folder in temporary.values():
                    shutil.rmtree(folder, ignore_errors=True)
                    folder.mkdir()
                yield temporary
                changed = [name for name in names if not _same(output / name, temporary[name])]
                for name in changed:
                    if (output / name).exists() and not overwrite:
                        raise SettingsError(
                            f"{output / name} is there and differs: name another --output-dir, or give --overwrite"
                        )
                for name in changed:
                    _replace(output / name, temporary[name])
            finally:
                for folder in temporary.values():
                    shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise NoSpaceError(f"no space left on the disk of {output}: free some; nothing of it was kept") from error
        raise SettingsError(f"cannot write {output}: {error.strerror or error}: name another --output-dir") from error


def _replace(place: Path, new: Path) -> None:
    for file in new.iterdir():
        sync(file)
    sync(new)
    old = place.with_name(f".{place.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    new.rename(place)
    sync(place.parent)
    shutil.rmtree(old, ignore_errors=True)


def _same(one: Path, two: Path) -> bool:
    names = {file.name for file in two.iterdir()}
    if not one.is_dir() or {file.name for file in one.iterdir()} != names:
        return False
    return all(filecmp.cmp(one / name, two / name, shallow=False) for name in names)
