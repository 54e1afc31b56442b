"""Host folders in the container: at the same path, so that manifests and messages name what the host has.

What a stage reads is read-only, and of a file only the file; what it writes is a folder made beforehand by the
invoking user: the engine would make a missing one as root.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ops.container.errors import StartError

# The image's own, and what the engine puts there: a mount over one of them would take it away.
_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "sbin", "sys", "usr")
_TAKEN = tuple(Path("/", name) for name in (*_SYSTEM, "opt/eyas", "cache", "hf"))
# These may hold mounts, and may not be one.
_WHOLE = (Path("/"), Path("/tmp"), Path("/run"), Path("/opt"), Path("/var"), Path("/run/secrets"))  # noqa: S108


@dataclass(frozen=True, order=True)
class Mount:
    """A bind mount."""

    target: Path
    source: Path
    read_only: bool


def same_path(reads: Iterable[Path], writes: Iterable[Path]) -> list[Mount]:
    """Mounts at the host's own paths, outer ones first; what an outer one covers in the same way is left out.

    Args:
        reads: absolute paths of files and folders; links that lead out of a folder are followed.
        writes: absolute paths of folders.

    Raises:
        StartError: a path that is the image's own.
    """
    written = set(writes)
    wanted = dict.fromkeys(written, False)
    reads = list(reads)
    for path in (*reads, *written):
        _check_place(path)  # before its links are looked for: it might be everything
    for path in reads:
        for needed in (path, *_link_targets(path)):
            wanted.setdefault(needed, True)
    chosen: dict[Path, bool] = {}
    for path in sorted(wanted, key=lambda p: len(p.parts)):
        _check_place(path)
        around = next((chosen[parent] for parent in path.parents if parent in chosen), None)
        if around is None or around != wanted[path]:
            chosen[path] = wanted[path]
    return [Mount(target=path, source=path, read_only=read_only) for path, read_only in chosen.items()]


def _check_place(path: Path) -> None:
    if path in _WHOLE or any(path == taken or taken in path.parents for taken in _TAKEN):
        raise StartError(
            f"{path} cannot be mounted: the image has files of its own there; give it by a link elsewhere "
            f"(ln -s {path} ~/{path.name or 'data'}), or use --runtime local"
        )


def _link_targets(path: Path) -> Iterator[Path]:
    """Folders that the links in a folder lead to, such as the blobs of a Hugging Face snapshot."""
    found: set[Path] = set()
    for entry in path.rglob("*"):
        here = entry
        # A chain of links, as the kernel follows it; 40 is its limit.
        for _ in range(40):
            if not here.is_symlink():
                break
            here = Path(os.path.normpath(here.parent / here.readlink()))
            if path not in here.parents and here != path:
                found.add(here if here.is_dir() else here.parent)
    yield from sorted(found)


def make_folders(writes: Iterable[Path]) -> None:
    """Make the folders that a stage writes to, as the user who runs this.

    Raises:
        StartError: one cannot be made.
    """
    for folder in writes:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StartError(f"cannot make {folder}: {error.strerror}; free or change that place") from error


def check(mounts: Iterable[Mount]) -> None:
    """Refuse what the stage could not read or write.

    Raises:
        StartError: a source is missing, or this user may not read it, or write where writing is meant.
    """
    for mount in mounts:
        if not mount.source.exists():
            raise StartError(f"cannot mount {mount.source}: it does not exist; check the path")
        if not _may(mount.source, write=not mount.read_only):
            what = "read" if mount.read_only else "write"
            raise StartError(f"cannot mount {mount.source}: this user may not {what} it; change its owner or mode")


def _may(path: Path, *, write: bool) -> bool:
    mode = os.R_OK | (os.X_OK if path.is_dir() else 0) | (os.W_OK if write else 0)
    if not os.access(path, mode):
        return False
    # In the container root has no capability to pass over owners and modes, so that here it counts as anybody.
    return os.getuid() != 0 or _mode_allows(path, mode)


def _mode_allows(path: Path, mode: int) -> bool:
    found = path.stat()
    groups = {os.getgid(), *os.getgroups()}
    shift = 6 if found.st_uid == os.getuid() else 3 if found.st_gid in groups else 0
    return (found.st_mode >> shift) & mode == mode
