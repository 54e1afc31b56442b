"""Whether a series is applied, whole and true: file hashes, RECORD, no stale bytecode, no interrupted run."""

from __future__ import annotations

from pathlib import Path

from ops.patches import bytecode, record
from ops.patches import series as series_module
from ops.patches.errors import PartlyAppliedError
from ops.patches.package import Installed, find_for, find_version
from ops.patches.series import Series
from ops.patches.state import FileState, file_states, read, refuse_changed
from ops.patches.swap import interrupted


def verify(series_dir: Path, site_packages: Path) -> str:
    """Check an installation against a series.

    Args:
        series_dir: the series folder, `<package>-<version>`.
        site_packages: the folder the package is installed in.

    Returns:
        One line saying what is right.

    Raises:
        PackageNotFoundError, WrongVersionError: the package is not there, or in another version.
        MalformedSeriesError, EscapesPackageError: the series is not as it should be.
        UpstreamChangedError: a file is neither upstream's nor the patched one.
        PartlyAppliedError: not all files are patched, RECORD is not true, or stale bytecode is there.
    """
    find_version(site_packages, *series_module.identity(series_dir))
    series = series_module.load(series_dir)
    check(series, find_for(site_packages, series))
    return f"{series.package} {series.version}: {len(series.patches)} patches applied, {len(series.hashes)} files right"


def check(series: Series, installed: Installed) -> None:
    """Like `verify`, for a series and a package that are loaded already."""
    contents = read(series, installed)
    refuse_changed(series, installed, contents)
    states = file_states(series, contents)
    unpatched = [path for path, state in states.items() if state is FileState.UPSTREAM]
    if unpatched:
        raise PartlyAppliedError(
            f"{installed.site}: {len(states) - len(unpatched)} of {len(states)} files are patched, "
            f"{unpatched[0]} is not; run patch.apply"
        )
    if interrupted(installed):
        raise PartlyAppliedError(f"{installed.site}: an earlier run was interrupted; run patch.apply to finish it")
    if wrong := record.faults(installed.record.read_bytes(), contents):
        raise PartlyAppliedError(
            f"{installed.record} is not true for {', '.join(wrong)}; "
            f"reinstall {series.package} {series.version} and apply again"
        )
    for path in contents:
        for pyc in bytecode.compiled(installed.site / path):
            if bytecode.is_stale(pyc, installed.site / path):
                raise PartlyAppliedError(f"{pyc} was compiled from other source than {path}; remove it")
