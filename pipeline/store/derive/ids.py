"""A file that names samples."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipeline.errors import InputError


def read_ids(file: Path) -> set[str]:
    """The samples that a file names: one id a line, as it is.

    Raises:
        InputError: it cannot be read, or names none.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text ({error.reason}): give one id a line") from error
    ids = set(text.split("\n")) - {""}
    if not ids:
        raise InputError(f"{file} names no sample: give one id a line")
    return ids


def check_known(ids: set[str], known: Iterable[str | None], file: Path, store: Path) -> None:
    """Refuse ids that a store knows nothing of.

    Args:
        ids: what the file names.
        known: the store's samples, captured or rejected.
        file: named in the error.
        store: named in the error.

    Raises:
        InputError: names one of them.
    """
    unknown = ids.difference(known)
    if unknown:
        raise InputError(
            f"{file} names {len(unknown):,} samples that {store} does not have, such as {min(unknown)!r}: "
            "leave them out"
        )
