"""A unit of a store as a unit of another one: its shard file by a hard link, or copied where there can be none."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec

from pipeline.errors import StoreDamagedError
from pipeline.store.durable import NewFile, told, write_synced
from pipeline.store.layout import TEMPORARY, shard_file, sidecar_file
from pipeline.store.sidecar import encode_sidecar, read_sidecar
from pipeline.store.spec import StoreSpec

# Another file system or bind mount; none of its kind, or a foreign file (fs.protected_hardlinks); too many links.
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}
_PIECE = 16 << 20
"""bytes copied at a time"""


def can_link(source: Path, folder: Path) -> bool:
    """Whether a file can have a second name in a folder.

    Raises:
        SettingsError: nothing can be written there.
    """
    probe = folder / f"link{TEMPORARY}"
    if not _link(source, probe):
        return False
    probe.unlink()
    return True


def place_unit(spec: StoreSpec, unit: int, source: StoreSpec, old: int) -> bool:
    """Have a unit of another store in this one.

    Args:
        spec: of the store that gets it.
        unit: its number there.
        source: of the store that has it; the same but for folder and identity.
        old: its number there.

    Returns:
        Whether its shard file was linked, and not copied.

    Raises:
        StoreDamagedError: it cannot be read.
        NoSpaceError, SettingsError: as `NewFile`; the unit does not count.
    """
    record = read_sidecar(source.folder, old)
    theirs, ours = shard_file(source.folder, old), shard_file(spec.folder, unit)
    if not (linked := _link(theirs, ours)):
        _copy(theirs, ours)
    # The samples that were rejected are in rejected.jsonl. The shard's name is on the disk with the record's: a power
    # cut in between leaves a record whose shard is missing, and that does not count.
    record = msgspec.structs.replace(record, unit=unit, identity=spec.identity, rejected=[])
    write_synced(sidecar_file(spec.folder, unit), [encode_sidecar(record)])
    return linked


def _link(source: Path, target: Path) -> bool:
    try:
        os.link(os.path.realpath(source), target)  # a link to a symbolic link would lead nowhere
    except FileNotFoundError as error:
        raise StoreDamagedError(
            f"{source} or {target.parent} was removed meanwhile: restore it and run again"
        ) from error
    except OSError as error:
        if error.errno in _NO_LINK:
            return False
        raise told(error, target) from error
    return True


def _copy(source: Path, target: Path) -> None:
    new = NewFile(target)
    try:
        with source.open("rb", buffering=0) as stream:
            while piece := stream.read(_PIECE):
                new.write(piece)
        new.commit()
    except OSError as error:  # NewFile tells its own
        new.discard()
        raise StoreDamagedError(f"cannot read {source}: {error.strerror}") from error
    except BaseException:
        new.discard()
        raise
