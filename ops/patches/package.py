"""An installed package: its dist-info, the names it owns, its files."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from ops.patches.errors import PackageNotFoundError, UpstreamChangedError, WrongVersionError
from ops.patches.paths import check_inside
from ops.patches.series import Series


@dataclass(frozen=True)
class Installed:
    """Where a package is installed, and which first path parts belong to it."""

    site: Path
    dist_info: Path
    version: str
    top_levels: frozenset[str]

    @property
    def record(self) -> Path:
        """The list of the package's files and their hashes, RECORD."""
        return self.dist_info / "RECORD"

    def read(self, path: str) -> bytes | None:
        """The content of a file, by its path relative to site-packages; None where there is none."""
        try:
            return (self.site / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:  # a folder in its place, or no permission
            raise UpstreamChangedError(f"{self.site / path} cannot be read ({error.strerror}); reinstall") from None


def find(site: Path, package: str) -> Installed:
    """Find a package by its dist-info.

    Args:
        site: a site-packages folder, or an unpacked wheel.
        package: the distribution's name.

    Raises:
        PackageNotFoundError: not there, there twice, or without a RECORD.
    """
    found = [(place, version) for place in _candidates(site, package) if (version := _version(place, package))]
    if len(found) != 1:
        fault = "is not installed" if not found else f"is installed {len(found)} times"
        raise PackageNotFoundError(f"{package} {fault} in {site}; give the site-packages folder it is installed in")
    dist_info, version = found[0]
    try:
        rows = list(csv.reader((dist_info / "RECORD").read_text("utf-8").splitlines()))
    except OSError as error:
        raise PackageNotFoundError(f"{dist_info / 'RECORD'} cannot be read ({error.strerror}); reinstall") from None
    tops = {row[0].split("/")[0] for row in rows if row}
    return Installed(site, dist_info, version, frozenset(tops - {dist_info.name, "..", ""}))


def find_for(site: Path, series: Series) -> Installed:
    """The package that a series is for, in the version it is for, with all paths of the series inside it.

    Raises:
        PackageNotFoundError: see `find`.
        WrongVersionError: another version is installed.
        EscapesPackageError: a patch names a path outside the package.
    """
    installed = find_version(site, series.package, series.version)
    check_paths(installed, series)
    return installed


def find_version(site: Path, package: str, version: str) -> Installed:
    """The package in this very version.

    Raises:
        PackageNotFoundError: see `find`.
        WrongVersionError: another version is installed.
    """
    installed = find(site, package)
    if installed.version != version:
        raise WrongVersionError(
            f"{package} {installed.version} is installed in {site}, the series is for {version}; "
            f"install {version}, or make a series for {installed.version} with patch.rebase"
        )
    return installed


def check_paths(installed: Installed, series: Series) -> None:
    """Refuse a series that names a path outside the package.

    Raises:
        EscapesPackageError: it does.
    """
    for path, patch in series.touched.items():
        check_inside(installed.site, path, installed.top_levels, patch)
    record = f"{installed.dist_info.name}/RECORD"
    check_inside(installed.site, record, {installed.dist_info.name}, "RECORD")


def _normal(name: str) -> str:
    """The name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _candidates(site: Path, package: str) -> list[Path]:
    """Folders that may be the dist-info; the folder's name cannot be trusted to the letter, METADATA decides."""
    return [place for place in site.glob("*.dist-info") if _normal(place.name).startswith(_normal(package) + "-")]


def _version(dist_info: Path, package: str) -> str | None:
    try:
        metadata = HeaderParser().parsestr((dist_info / "METADATA").read_text("utf-8"))
    except OSError:  # what an uninstaller may leave: a dist-info without METADATA is no package
        return None
    return str(metadata["Version"]) if _normal(str(metadata["Name"])) == _normal(package) else None
