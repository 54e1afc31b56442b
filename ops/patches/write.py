"""Writes a series back to its folder: the patches, the list, files.sha256."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ops.patches import hashes
from ops.patches.errors import DoesNotFitError
from ops.patches.git import file_diff
from ops.patches.series import LIST_NAME, SEPARATOR, Patch, parse_patch
from ops.patches.state import Contents


def regenerated(name: str, header_text: bytes, before: Contents, after: Contents) -> Patch:
    """A patch with this header and the difference between two sets of files.

    Raises:
        DoesNotFitError: nothing differs.
        MalformedSeriesError: a file is binary, or the header is not as it should be.
    """
    diff = b"".join(file_diff(path, before.get(path), after.get(path)) for path in sorted({*before, *after}))
    if not diff:
        raise DoesNotFitError(f"{name}: it would change nothing; drop it from the series")
    return parse_patch(name, header_text + SEPARATOR + diff)


def write(folder: Path, patches: Sequence[Patch], listing: str, known: Mapping[str, hashes.FileHashes]) -> None:
    """Write a series; each file is replaced whole, and only where it differs.

    Args:
        folder: the series folder; made if missing.
        patches: the patches to write.
        listing: the text of `series`.
        known: what goes into files.sha256.

    Raises:
        MalformedSeriesError: the series leaves a file as it was; nothing is written.
    """
    hashes.check_changes(folder, known)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {patch.name: patch.data for patch in patches}
    texts |= {LIST_NAME: listing.encode(), hashes.FILE_NAME: hashes.render(known)}
    for name, data in texts.items():
        place = folder / name
        if place.exists() and place.read_bytes() == data:
            continue
        temporary = folder.parent / f".{folder.name}.{name}.new"  # not in the folder: it would be an unlisted file
        temporary.write_bytes(data)
        temporary.replace(place)
