"""Applies a series to an installed package: everything is checked first, then all files change at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ops.patches import series as series_module
from ops.patches.errors import AlreadyAppliedError, DoesNotFitError, PartlyAppliedError
from ops.patches.hashes import sha256
from ops.patches.package import Installed, find_for, find_version
from ops.patches.series import Series
from ops.patches.state import Contents, FileState, State, file_states, overall, read, refuse_changed, stages
from ops.patches.swap import interrupted, locked, swap
from ops.patches.verify import check


@dataclass(frozen=True)
class ApplyReport:
    """What `apply` did; `finished` is True where it ended what an earlier, interrupted run had begun."""

    package: str
    version: str
    patches: tuple[str, ...]
    files: tuple[str, ...]
    finished: bool

    def __str__(self) -> str:
        how = "finished an interrupted run: " if self.finished else ""
        return (
            f"{how}{self.package} {self.version}: {len(self.patches)} patches applied, {len(self.files)} files changed"
        )


def apply(series_dir: Path, site_packages: Path) -> ApplyReport:
    """Apply a series; on any error nothing is changed on the disk.

    Args:
        series_dir: the series folder, `<package>-<version>`.
        site_packages: the folder the package is installed in.

    Raises:
        PackageNotFoundError, WrongVersionError: the package is not there, or in another version.
        MalformedSeriesError, EscapesPackageError: the series is not as it should be.
        UpstreamChangedError: a file is neither upstream's nor the patched one.
        PartlyAppliedError, AlreadyAppliedError: some or all files are patched already.
        DoesNotFitError: a hunk does not match at its line, or the outcome is not the recorded one.
        ops.errors.DiskSpaceError, ops.errors.InstallError: the files cannot be written.
    """
    find_version(site_packages, *series_module.identity(series_dir))
    series = series_module.load(series_dir)
    installed = find_for(site_packages, series)
    with locked(installed):
        unfinished = interrupted(installed)
        contents = read(series, installed)
        _refuse(series, installed, contents, unfinished)
        swap(installed, {**contents, **_patched(series, contents)})
        check(series, installed)
    return ApplyReport(
        series.package, series.version, tuple(patch.name for patch in series.patches), tuple(contents), unfinished
    )


def _refuse(series: Series, installed: Installed, contents: Contents, unfinished: bool) -> None:
    """Raise unless all files are upstream's, or an interrupted run left some of them patched."""
    refuse_changed(series, installed, contents)
    states = file_states(series, contents)
    state = overall(states)
    if state is State.APPLIED and not unfinished:
        raise AlreadyAppliedError(f"{series.package} {series.version} in {installed.site} is patched already")
    if state is State.PARTLY and not unfinished:
        patched = [path for path, each in states.items() if each is FileState.PATCHED]
        raise PartlyAppliedError(
            f"{installed.site}: {len(patched)} of {len(states)} files are patched ({', '.join(patched)}); "
            f"reinstall {series.package} {series.version} and apply again"
        )


def _patched(series: Series, contents: Contents) -> dict[str, bytes | None]:
    """The new contents of those files that are still upstream's."""
    states = file_states(series, contents)
    upstream = {path: content for path, content in contents.items() if states[path] is FileState.UPSTREAM}
    patched = stages(series, upstream)[-1]
    for path, content in patched.items():
        if sha256(content) != series.hashes[path].patched:
            last = [patch.name for patch in series.patches if path in {diff.path for diff in patch.diffs}][-1]
            raise DoesNotFitError(
                f"{last}: {path} comes out with sha256 {sha256(content) or 'absent'}, files.sha256 says "
                f"{series.hashes[path].patched or 'absent'}; run patch.refresh and review what it changes"
            )
    return patched
