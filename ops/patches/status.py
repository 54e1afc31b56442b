"""What state an installation is in, for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ops.patches import series as series_module
from ops.patches.package import check_paths, find
from ops.patches.series import Series
from ops.patches.state import FileState, State, file_states, overall, read
from ops.patches.swap import interrupted


@dataclass(frozen=True)
class StatusReport:
    """The state as a whole and of each file; `str` of it is the text that is shown."""

    series: Series
    installed_version: str
    state: State
    files: Mapping[str, FileState]
    interrupted: bool

    def __str__(self) -> str:
        found = "" if self.state is not State.WRONG_VERSION else f" ({self.installed_version} is installed)"
        head = f"{self.series.package} {self.series.version}: {self.state.value}{found}"
        if self.interrupted:
            head += "; an earlier run was interrupted, patch.apply finishes it"
        patches = [f"  {patch.name}  {patch.sha256}  {patch.header.summary}" for patch in self.series.patches]
        files = [f"  {state.value:<8}  {path}" for path, state in self.files.items()]
        return "\n".join([head, "patches:", *patches, *(["files:", *files] if files else [])])


def status(series_dir: Path, site_packages: Path) -> StatusReport:
    """Look at an installation without judging it.

    Args:
        series_dir: the series folder, `<package>-<version>`.
        site_packages: the folder the package is installed in.

    Raises:
        PackageNotFoundError: the package is not there.
        MalformedSeriesError, EscapesPackageError: the series is not as it should be.
    """
    installed = find(site_packages, series_module.identity(series_dir)[0])
    series = series_module.load(series_dir)
    if installed.version != series.version:
        return StatusReport(series, installed.version, State.WRONG_VERSION, {}, False)
    check_paths(installed, series)
    files = file_states(series, read(series, installed))
    unfinished = interrupted(installed)
    state = overall(files)
    # A run killed after its last rename has patched every file but not RECORD.
    state = State.PARTLY if unfinished and state is State.APPLIED else state
    return StatusReport(series, installed.version, state, files, unfinished)
