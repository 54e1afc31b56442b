"""Which paths a patch may name: relative ones, inside the package, through no symbolic link."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from ops.patches.errors import EscapesPackageError, MalformedSeriesError


def checked_name(patch: str, name: bytes, prefix: bytes) -> str:
    """A name from a diff header without its `a/` or `b/`.

    Raises:
        EscapesPackageError: the path is absolute or has `..` in it.
        MalformedSeriesError: no prefix, quoted, not UTF-8, or not in its shortest form.
    """
    shown = name.decode("utf-8", "backslashreplace")
    path = shown[2:] if name.startswith(prefix) else shown
    if path.startswith("/") or ".." in path.split("/"):
        raise EscapesPackageError(f"{patch}: path {shown!r} leads out of site-packages; name a file of the package")
    if not name.startswith(prefix):
        raise MalformedSeriesError(f"{patch}: path {shown!r} does not start with {prefix.decode()!r}")
    if not path.isprintable() or set(path) & set('"\\') or str(PurePosixPath(path)) != path or path == ".":
        raise MalformedSeriesError(f"{patch}: path {shown!r} is not a plain relative path")
    return path


def check_inside(site: Path, path: str, top_levels: Iterable[str], patch: str) -> None:
    """Refuse a path outside the package's own top-level names, or one that a symbolic link leads elsewhere.

    Args:
        site: the site-packages folder.
        path: relative to it, already through `checked_name`.
        top_levels: first path parts that belong to the package.
        patch: the patch that names the path.

    Raises:
        EscapesPackageError: it is, or does.
    """
    parts = PurePosixPath(path).parts
    if parts[0] not in top_levels:
        raise EscapesPackageError(f"{patch}: {path} is not in the package, which owns {', '.join(sorted(top_levels))}")
    for depth in range(1, len(parts) + 1):
        place = site.joinpath(*parts[:depth])
        # Even a link that stays inside is refused: a rename would replace the link and leave its target as it was.
        if place.is_symlink():
            raise EscapesPackageError(
                f"{patch}: {path} passes through the symbolic link {place} to {place.readlink()}; "
                "install the package as files (uv: --link-mode copy or hardlink)"
            )
