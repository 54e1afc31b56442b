"""The patch commands: which series, which installed environment, which upstream source."""

from __future__ import annotations

from pathlib import Path

from ops.errors import LockError, StackError
from ops.local import ensure
from ops.packages import fetch_wheel
from ops.patches.new import new as new_patch
from ops.patches.rebase import rebase as rebase_series
from ops.patches.refresh import refresh as refresh_series
from ops.patches.series import identity
from ops.patches.status import status as series_status
from ops.patches.verify import verify as verify_series
from ops.stack.check import find_site_packages
from ops.stack.lockfile import read_lock
from ops.stack.model import STACKS, Stack, load


def status(name: str) -> None:
    """Print the state of the series in the installed stack.

    Raises:
        StackError: this stack patches nothing; so say the other commands too.
    """
    stack = load(STACKS / name)
    print(series_status(series_of(stack), find_site_packages(ensure(stack))))


def verify(name: str) -> None:
    """Check that the installed stack has the whole series."""
    stack = load(STACKS / name)
    print(verify_series(series_of(stack), find_site_packages(ensure(stack))))


def new(stack_name: str, edited: str, **header: str) -> None:
    """Make the next patch from an edited copy of the patched package; `header` is what ops.patches.new takes."""
    stack = load(STACKS / stack_name)
    print(new_patch(series_of(stack), upstream_wheel(stack), Path(edited), **header))


def refresh(name: str) -> None:
    """Make line numbers and files.sha256 right again after a patch was edited by hand."""
    stack = load(STACKS / name)
    changed = refresh_series(series_of(stack), upstream_wheel(stack))
    print("\n".join([f"{len(changed)} patches changed", *(f"  {patch}" for patch in changed)]))


def rebase(name: str, version: str) -> None:
    """Carry the series over to another version of the package."""
    stack = load(STACKS / name)
    series = series_of(stack)
    package, _ = identity(series)
    print(rebase_series(series, upstream_wheel(stack), fetch_wheel(f"{package}=={version}"), version))


def series_of(stack: Stack) -> Path:
    """Folder of the stack's series.

    Raises:
        StackError: it has none.
    """
    if stack.series is None:
        raise StackError(
            f"stack {stack.name} has no patches: its packages are upstream's own; to patch one, name a series in "
            f'{stack.folder / "stack.toml"}, patches = "PACKAGE-VERSION"'
        )
    return stack.series


def upstream_wheel(stack: Stack) -> Path:
    """The unpatched package, by the hashes of the stack's lock.

    Raises:
        LockError: the lock does not pin the package that the series is for.
        StackError: the stack has no series.
    """
    package, version = identity(series_of(stack))
    accelerator = next(iter(stack.accelerators))
    for entry in read_lock(stack.lock(accelerator)).entries:
        if (entry.name, entry.version) == (package, version):
            return fetch_wheel(f"{package}=={version} " + " ".join(f"--hash=sha256:{h}" for h in entry.hashes))
    raise LockError(f"{stack.lock(accelerator)} does not pin {package} {version}, which {stack.series} is for")
