"""`patch.new`: the next patch of a series, from the difference between the patched package and an edited copy."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from pathlib import Path

from ops.patches import hashes, header
from ops.patches.errors import DoesNotFitError, MalformedSeriesError, PackageNotFoundError
from ops.patches.package import Installed, check_paths, find_version
from ops.patches.series import LIST_NAME, Series, identity, load, load_patches
from ops.patches.state import stages, upstream_of
from ops.patches.trees import opened, source_files
from ops.patches.write import regenerated, write


def new(  # noqa: PLR0913 (each is a field of the header or a folder; all are by name)
    series_dir: Path,
    upstream: Path,
    edited: Path,
    *,
    name: str,
    description: str,
    test: str,
    author: str,
    forwarded: str = "no",
) -> Path:
    """Write the next patch and bring the list and files.sha256 up to date.

    Args:
        series_dir: the series folder; made when this is its first patch.
        upstream: upstream's package, unpatched or with the series applied: a site-packages folder or a wheel.
        edited: a folder shaped like site-packages with the edited package: all of it, for what is not there counts
            as deleted. `without.materialise` makes one to edit.
        name: what it fixes, in lower case with hyphens.
        description: DEP-3 Description; its first line is the summary.
        test: pytest node id of the test that fails without the patch.
        author: DEP-3 Author.
        forwarded: DEP-3 Forwarded: an address, `no` or `not-needed`.

    Returns:
        The new patch file.

    Raises:
        PackageNotFoundError, WrongVersionError, UpstreamChangedError: `upstream` is not what the series is for.
        MalformedSeriesError: the series, the name or a field is not as it should be.
        DoesNotFitError: nothing was edited.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise MalformedSeriesError(f"patch name {name!r}: use lower case letters, digits and hyphens")
    fields = {
        "Description": description,
        "Author": author,
        "Forwarded": forwarded,
        "Last-Update": date.today().isoformat(),
        header.TEST_FIELD: test,
    }
    series = _existing(series_dir)
    with opened(upstream) as tree:
        installed = find_version(tree, series.package, series.version)
        check_paths(installed, series)
        upstream_contents = upstream_of(series, installed)
        patched = stages(series, upstream_contents)[-1]
        before, after = _edits(installed, edited, patched)
    number = int(series.patches[-1].name[:4]) + 1 if series.patches else 1
    if not after:
        raise DoesNotFitError(f"{edited} is the same as {series.package} with the series applied; edit it first")
    patch = regenerated(f"{number:04d}-{name}.patch", header.render(fields), before, after)
    # Files that no earlier patch touches are upstream's where they are not edited.
    known = hashes.between({**before, **upstream_contents}, {**patched, **after})
    write(series_dir, [patch], f"{_listing(series_dir)}{patch.name}\n", known)
    return series_dir / patch.name


def _existing(series_dir: Path) -> Series:
    """The series so far; nothing yet is an empty one."""
    if not (series_dir / LIST_NAME).exists():
        return Series(series_dir, *identity(series_dir), (), {})
    series = load_patches(series_dir)
    return load(series_dir) if series.patches else series


def _listing(series_dir: Path) -> str:
    """The text of the list so far, its last line ended."""
    file = series_dir / LIST_NAME
    text = file.read_text("utf-8") if file.exists() else ""
    return text if text.endswith("\n") or not text else text + "\n"


def _edits(
    installed: Installed, edited: Path, patched: dict[str, bytes | None]
) -> tuple[dict[str, bytes | None], dict[str, bytes | None]]:
    """What differs between the patched package and the edited one, before and after."""
    other = replace(installed, site=edited)
    if missing := [top for top in sorted(installed.top_levels) if not (edited / top).exists()]:
        raise PackageNotFoundError(f"{edited} has no {missing[0]}; give a folder that holds the whole edited package")
    before: dict[str, bytes | None] = {}
    after: dict[str, bytes | None] = {}
    here = source_files(installed.site, installed.top_levels) | set(patched)
    for path in sorted(here | source_files(edited, installed.top_levels)):
        old = patched[path] if path in patched else installed.read(path)
        content = other.read(path)
        if old != content:
            before[path], after[path] = old, content
    return before, after
