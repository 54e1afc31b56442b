"""`patch.refresh`: regenerates every diff at the place where it now applies, and files.sha256."""

from __future__ import annotations

from pathlib import Path

from ops.patches import hashes
from ops.patches.errors import DoesNotFitError, UpstreamChangedError
from ops.patches.fit import fit, splice
from ops.patches.git import merge
from ops.patches.hunks import Hunk, split_lines
from ops.patches.package import check_paths, find_version
from ops.patches.series import LIST_NAME, Patch, Series, load_patches
from ops.patches.state import Contents, read
from ops.patches.trees import opened
from ops.patches.unified import FileDiff
from ops.patches.write import regenerated, write


def refresh(series_dir: Path, upstream: Path) -> list[str]:
    """Rewrite the series so that it applies strictly, after a patch was edited, added or removed by hand.

    A hunk whose lines have moved is found where they stand, if they stand in one place only. A patch made for
    upstream's file rather than for the one its predecessors leave is merged three-way.

    Args:
        series_dir: the series folder.
        upstream: upstream's package, unpatched: a site-packages folder or a wheel.

    Returns:
        The names of the patches whose text changed.

    Raises:
        PackageNotFoundError, WrongVersionError, UpstreamChangedError: `upstream` is not what the series is for.
        MalformedSeriesError, EscapesPackageError: the series is not as it should be.
        DoesNotFitError: a patch has no place any more; names it. Nothing was written.
    """
    series = load_patches(series_dir)
    with opened(upstream) as tree:
        installed = find_version(tree, series.package, series.version)
        check_paths(installed, series)
        originals = read(series, installed)
    _check_pinned(series, originals)
    current, patches = dict(originals), []
    for patch in series.patches:
        after = dict(current)
        for diff in patch.diffs:
            after[diff.path] = _placed(patch, diff, originals[diff.path], current[diff.path])
        patches.append(regenerated(patch.name, patch.header_text, current, after))
        current = after
    write(series_dir, patches, (series_dir / LIST_NAME).read_text("utf-8"), hashes.between(originals, current))
    return [old.name for old, made in zip(series.patches, patches, strict=True) if old.data != made.data]


def _check_pinned(series: Series, originals: Contents) -> None:
    """Refuse to pin another upstream than files.sha256 already does."""
    if not (series.folder / hashes.FILE_NAME).exists():
        return
    pinned = hashes.read(series.folder)
    for path, content in originals.items():
        if pinned.get(("upstream", path), found := hashes.sha256(content)) != found:
            raise UpstreamChangedError(
                f"upstream's {path} has sha256 {found or 'absent'}, which is not what {hashes.FILE_NAME} says; "
                f"give an unpatched {series.package} {series.version}"
            )


def _placed(patch: Patch, diff: FileDiff, upstream: bytes | None, current: bytes | None) -> bytes | None:
    """The file after the patch: at its lines, else where its lines stand now, else merged from upstream's file."""
    try:
        return moved(patch.name, diff, current)
    except DoesNotFitError as misfit:
        try:
            theirs = moved(patch.name, diff, upstream)
        except DoesNotFitError:
            raise misfit from None
        merged = merge(upstream, current, theirs)
        if merged.conflicts:
            raise misfit from None
        return merged.content


def moved(patch: str, diff: FileDiff, content: bytes | None) -> bytes | None:
    """Apply a diff at its lines, or else where all its old lines stand, provided that is one place only.

    Raises:
        DoesNotFitError: a hunk stands nowhere or in several places.
    """
    try:
        return fit(patch, diff, content)
    except DoesNotFitError:
        if content is None or diff.creates or diff.deletes:
            raise
    lines = split_lines(content)
    return splice(patch, diff, lines, _places(patch, diff, lines))


def _places(patch: str, diff: FileDiff, lines: list[bytes]) -> list[int]:
    places: list[int] = []
    for hunk in diff.hunks:
        found = _standing(hunk, lines)
        if len(found) != 1 or (places and found[0] <= places[-1]):
            where = "nowhere" if not found else "in several places" if len(found) > 1 else "before the hunk before it"
            raise DoesNotFitError(f"{patch}: {diff.path}, hunk {hunk.number}: its lines stand {where}; edit the patch")
        places += found
    return places


def _standing(hunk: Hunk, lines: list[bytes]) -> list[int]:
    old = hunk.old
    return [at for at in range(len(lines) - len(old) + 1) if old and lines[at : at + len(old)] == old]
