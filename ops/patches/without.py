"""The patched package as a copy: with the whole series, or with all of it but one patch.

The suite runs each patch's test against the package without that patch: a patch that is not needed shows itself there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ops.patches.errors import DoesNotFitError, MalformedSeriesError
from ops.patches.git import merge
from ops.patches.hunks import split_lines
from ops.patches.package import find_for
from ops.patches.series import Series, load
from ops.patches.state import stages, upstream_of
from ops.patches.swap import swap
from ops.patches.trees import copy_package, opened


def materialise(series_dir: Path, upstream: Path, destination: Path) -> Path:
    """Copy the package and its dist-info, with the whole series applied.

    Args:
        series_dir: the series folder.
        upstream: the package, unpatched or with the series applied: a site-packages folder or a wheel.
        destination: a folder that is not there yet or is empty; put it on `PYTHONPATH` to use the copy.

    Returns:
        The destination.

    Raises:
        PackageNotFoundError, WrongVersionError, UpstreamChangedError: `upstream` is not what the series is for.
        MalformedSeriesError, EscapesPackageError: the series is not as it should be.
        DoesNotFitError: a patch does not apply.
        ops.errors.InstallError: the destination is not empty, or cannot be written.
    """
    series = load(series_dir)
    return _copy(series, upstream, destination, lambda steps: steps[-1])


def without(series_dir: Path, upstream: Path, destination: Path, patch_name: str) -> Path:
    """Like `materialise`, with one patch left out: its change is taken back from the full result, three-way.

    Args:
        series_dir: the series folder.
        upstream: the package, unpatched or with the series applied: a site-packages folder or a wheel.
        destination: a folder that is not there yet or is empty.
        patch_name: the patch to leave out.

    Returns:
        The destination.

    Raises:
        DoesNotFitError: later patches build on this one's lines; names file and lines.
        UserError: as for `materialise`.
    """
    series = load(series_dir)
    names = [patch.name for patch in series.patches]
    if patch_name not in names:
        raise MalformedSeriesError(f"{series_dir} has no patch {patch_name!r}; it has {', '.join(names)}")
    index = names.index(patch_name)
    return _copy(series, upstream, destination, lambda steps: _left_out(series, index, steps))


def _left_out(series: Series, index: int, steps: list[dict[str, bytes | None]]) -> dict[str, bytes | None]:
    result = dict(steps[-1])
    for path in [diff.path for diff in series.patches[index].diffs]:
        base, ours, theirs = (_spread(steps[at][path]) for at in (index + 1, -1, index))
        merged = merge(base=base, ours=ours, theirs=theirs)
        if merged.conflicts:
            # Every other line of the spread file is a separator.
            spans = ", ".join(f"{first // 2 + 1}-{(last + 1) // 2}" for first, last in merged.conflicts)
            raise DoesNotFitError(
                f"{series.patches[index].name} cannot be left out: later patches change its lines in {path}, "
                f"lines {spans} of the patched file; join them, or move the changes apart"
            )
        result[path] = None if merged.content is None else merged.content.replace(_SEPARATOR, b"")
    return result


_SEPARATOR = b"\x1e\x1f\n"


def _spread(content: bytes | None) -> bytes | None:
    """A separator after every line: git takes changes of neighbouring lines for a conflict, and here they are none."""
    return None if content is None else b"".join(line + _SEPARATOR for line in split_lines(content))


def _copy(
    series: Series,
    upstream: Path,
    destination: Path,
    choose: Callable[[list[dict[str, bytes | None]]], Mapping[str, bytes | None]],
) -> Path:
    with opened(upstream) as tree:
        installed = find_for(tree, series)
        contents = choose(stages(series, upstream_of(series, installed)))
        copy_package(installed, destination)
    place = replace(installed, site=destination, dist_info=destination / installed.dist_info.name)
    swap(place, contents)
    return destination
