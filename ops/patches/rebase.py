"""`patch.rebase`: carries a series over to another version of its package, patch by patch, three-way."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ops.patches import hashes
from ops.patches.errors import DoesNotFitError
from ops.patches.fit import fit
from ops.patches.git import merge
from ops.patches.package import Installed, check_paths, find_for, find_version
from ops.patches.series import Patch, Series, load
from ops.patches.state import Contents, stages, upstream_of
from ops.patches.trees import check_absent, opened
from ops.patches.write import regenerated, write


class Outcome(Enum):
    """What became of a patch."""

    CLEAN = "applies as it is"
    MERGED = "merged: its lines have moved or their surroundings have changed"
    UPSTREAM = "upstream has it already: dropped"


@dataclass(frozen=True)
class RebaseReport:
    """The new series folder (absent if upstream has everything) and what became of each patch, in order."""

    folder: Path
    version: str
    outcomes: tuple[tuple[str, Outcome], ...]

    def __str__(self) -> str:
        lines = [f"  {name}: {outcome.value}{self._applied(outcome)}" for name, outcome in self.outcomes]
        kept = sum(outcome is not Outcome.UPSTREAM for _, outcome in self.outcomes)
        head = f"{self.folder}: {kept} patches" if kept else f"nothing is left to patch in {self.version}"
        return "\n".join([head, *lines])

    def _applied(self, outcome: Outcome) -> str:
        return f" (Applied-Upstream: {self.version})" if outcome is Outcome.UPSTREAM else ""


def rebase(series_dir: Path, upstream_old: Path, upstream_new: Path, new_version: str) -> RebaseReport:
    """Make `<package>-<new version>/` beside a series.

    Args:
        series_dir: the series to carry over.
        upstream_old: the package it is for: a site-packages folder or a wheel.
        upstream_new: the package in the new version, unpatched.
        new_version: that version.

    Raises:
        PackageNotFoundError, WrongVersionError, UpstreamChangedError: an upstream is not what it should be.
        MalformedSeriesError, EscapesPackageError: the series is not as it should be.
        DoesNotFitError: a patch conflicts; names it, file and lines. Nothing was written.
        ops.errors.InstallError: the new folder is there already.
    """
    series = load(series_dir)
    folder = series_dir.absolute().parent / f"{series.package}-{new_version}"
    check_absent(folder)
    with opened(upstream_old) as old_tree, opened(upstream_new) as new_tree:
        steps = stages(series, upstream_of(series, find_for(old_tree, series)))
        installed = find_version(new_tree, series.package, new_version)
        check_paths(installed, series)
        originals = {path: installed.read(path) for path in sorted(series.touched)}
        kept, outcomes, final = _carry(series, steps, originals, installed)
    if kept:
        _write_whole(folder, kept, _listing(kept, outcomes, new_version), originals, final)
    return RebaseReport(folder, new_version, tuple(outcomes))


def _carry(
    series: Series, steps: list[dict[str, bytes | None]], originals: Contents, installed: Installed
) -> tuple[list[Patch], list[tuple[str, Outcome]], Contents]:
    current = dict(originals)
    kept: list[Patch] = []
    outcomes: list[tuple[str, Outcome]] = []
    for patch, base, theirs in zip(series.patches, steps, steps[1:], strict=False):
        after = {**current, **_merged(patch, base, current, theirs, installed)}
        if after == current:
            outcomes.append((patch.name, Outcome.UPSTREAM))
            continue
        outcomes.append((patch.name, Outcome.CLEAN if _fits(patch, current, after) else Outcome.MERGED))
        kept.append(regenerated(patch.name, patch.header_text, current, after))
        current = after
    return kept, outcomes, current


def _merged(
    patch: Patch, base: Contents, ours: Contents, theirs: Contents, installed: Installed
) -> dict[str, bytes | None]:
    result = {}
    for path in [diff.path for diff in patch.diffs]:
        merged = merge(base[path], ours[path], theirs[path])
        if merged.conflicts:
            spans = ", ".join(f"{first}-{last}" for first, last in merged.conflicts)
            raise DoesNotFitError(
                f"{patch.name} conflicts with {installed.version} in {path}, lines {spans} (as the patches before it "
                "leave it); rebase the series without this patch, then make it anew with patch.new"
            )
        result[path] = merged.content
    return result


def _fits(patch: Patch, current: Contents, after: Contents) -> bool:
    """Whether the patch as it stands, line numbers and all, gives the same."""
    try:
        return all(fit(patch.name, diff, current[diff.path]) == after[diff.path] for diff in patch.diffs)
    except DoesNotFitError:
        return False


def _listing(kept: list[Patch], outcomes: list[tuple[str, Outcome]], version: str) -> str:
    """The text of `series`, with what upstream has now as comments."""
    names = {patch.name for patch in kept}
    return "".join(f"{name}\n" if name in names else f"# {name}: Applied-Upstream: {version}\n" for name, _ in outcomes)


def _write_whole(folder: Path, kept: list[Patch], listing: str, originals: Contents, final: Contents) -> None:
    """Write the folder under another name first: with its own name it is whole."""
    touched = {diff.path for patch in kept for diff in patch.diffs}
    known = {path: pair for path, pair in hashes.between(originals, final).items() if path in touched}
    with tempfile.TemporaryDirectory(prefix=".eyas-", dir=folder.parent) as temporary:
        write(Path(temporary) / folder.name, kept, listing, known)
        (Path(temporary) / folder.name).replace(folder)
