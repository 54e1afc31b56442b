"""Makes the host environment that `./eyas` runs in, once per lock and Python, and prints its interpreter.

Run as a script by `eyas` with the machine's own Python, so it needs only the standard library. The environment is
`host/<digest>` in the cache, installed with every package's hash checked.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

# A script's own folder is first in the path; its package is ops of the checkout above.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from ops.atomic import make_once  # noqa: E402 - needs the line above
from ops.errors import ChecksumError, InstallError, UserError  # noqa: E402
from ops.paths import cache_root  # noqa: E402

LOCK = Path(__file__).with_name("host.lock")


def host_folder(lock: Path) -> Path:
    """Place of the host environment of `lock` for this Python: a changed lock or Python is another place."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(version.encode() + b"\n" + lock.read_bytes()).hexdigest()
    return cache_root() / "host" / digest[:16]


def has_python(folder: Path) -> bool:
    """Whether the environment's interpreter can be started: false too when the Python it was made from is gone."""
    return os.access(folder / "bin" / "python", os.X_OK)


def install(folder: Path, lock: Path) -> None:
    """Make a virtual environment in `folder` with exactly what `lock` pins.

    Raises:
        ChecksumError: a package is not the one whose hash is in the lock.
        InstallError: anything else that pip could not do.
    """
    print("eyas: setting up the host environment (once)", file=sys.stderr, flush=True)
    _run([sys.executable, "-m", "venv", str(folder)], lock)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    _run([*pip, "--quiet", "--require-hashes", "--only-binary", ":all:", "--requirement", str(lock)], lock)


def _run(command: list[str], lock: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    said = done.stderr.strip() or done.stdout.strip()
    if "DO NOT MATCH THE HASHES" in said:
        raise ChecksumError(f"a package is not the one that {lock} pins; get a fresh checkout, or check the index")
    if "No matching distribution" in said or "Connection" in said:
        # pip says the same of an index that it cannot reach and of one that lacks the package.
        raise InstallError(
            "no package index with what ops/host.lock pins was reached; "
            "connect this machine, or set PIP_INDEX_URL to a mirror"
        )
    lines = [line for line in said.splitlines() if line.strip()] or ["no message"]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    raise InstallError(f"the host environment could not be installed from {lock}: {errors[-1]}")


def main() -> int:
    """Print the host environment's interpreter, or one line about what is wrong."""
    try:
        folder = make_once(
            host_folder(LOCK),
            lambda temporary: install(temporary, LOCK),
            whole=has_python,
            waiting=lambda: print("eyas: waiting for another eyas that is setting up", file=sys.stderr, flush=True),
        )
    except UserError as error:
        print(f"eyas: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("eyas: interrupted", file=sys.stderr)
        return 130
    print(folder / "bin" / "python")
    return 0


if __name__ == "__main__":
    sys.exit(main())
