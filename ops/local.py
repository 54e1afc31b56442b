"""The local runtime: a stack installed in a folder of the cache, so that everything works with no Docker engine.

The folder is `envs/<stack>-<accelerator>-<digest>`, made once: packages from the lock, each checked against its
sha256, then the patch series, then stack.json, which says what it is.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
from pathlib import Path

from packaging.specifiers import SpecifierSet

from ops.atomic import make_once
from ops.errors import ChecksumError, DiskSpaceError, InstallError, PythonError
from ops.patches.apply import apply
from ops.paths import cache_root
from ops.progress import on_terminal
from ops.stack.alias import add_alias
from ops.stack.check import check_lock, find_site_packages
from ops.stack.digest import stack_digest
from ops.stack.identity import write_identity
from ops.stack.model import Stack
from ops.uv import reason, run_uv

GIB = 1 << 30
# Room that must be left beside the environment for what runs in it.
MARGIN_GIB = 2


def python_version() -> str:
    """Major and minor version of the Python that environments are made with: the host's own."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def environment_folder(stack: Stack, accelerator: str) -> Path:
    """Place of the stack's environment for this machine's Python."""
    key = hashlib.sha256(f"{stack_digest(stack, accelerator)} {python_version()}".encode()).hexdigest()
    return cache_root() / "envs" / f"{stack.name}-{accelerator}-{key[:16]}"


def is_whole(environment: Path) -> bool:
    """Whether the environment can be used: made to the end, by a Python that is still there."""
    return (environment / "stack.json").is_file() and os.access(environment / "bin" / "python", os.X_OK)


def ensure(stack: Stack, accelerator: str = "cpu") -> Path:
    """Return the stack's environment, installed first if it is not there.

    Raises:
        PythonError: the machine's Python is not one the stack runs on.
        LockError: the lock is missing or out of date.
        DiskSpaceError: the environment does not fit.
        InstallError, ChecksumError: a package cannot be installed.
        UserError: the patches do not apply (exit codes 10 to 17).
    """
    final = environment_folder(stack, accelerator)
    if is_whole(final):
        return final
    part = stack.accelerator(accelerator)
    if python_version() not in SpecifierSet(part.python):
        raise PythonError(f"stack {stack.name} runs on Python {part.python}, this is {python_version()}; install one")
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise InstallError(f"stack {stack.name} is for x86-64 Linux; this is {platform.system()} {platform.machine()}")
    check_lock(part, stack.lock(accelerator))
    return make_once(
        final,
        lambda temporary: _install(stack, accelerator, temporary),
        whole=is_whole,
        waiting=lambda: _say("waiting for another eyas that is installing a stack"),
    )


def _install(stack: Stack, accelerator: str, folder: Path) -> None:
    size = stack.accelerator(accelerator).installed_gib
    check_space(folder, size)
    _say(f"installing the {stack.name} stack for {accelerator} (once, about {size} GiB)")
    sources = [part for build in stack.accelerator(accelerator).build for part in ("--no-binary", build.name)]
    install_lock(folder, stack.lock(accelerator), ["--no-deps", *sources])
    add_alias(folder)
    if stack.series is not None:
        apply(stack.series, find_site_packages(folder))
    write_identity(stack, accelerator, platform.python_version(), folder)


def install_lock(folder: Path, lock: Path, flags: list[str]) -> None:
    """Make a virtual environment in `folder`, which may be moved later, with what `lock` pins.

    Raises:
        ChecksumError: a package is not the one whose sha256 is in the lock.
        InstallError: anything else that uv could not do.
    """
    _uv(["venv", "--relocatable", "--allow-existing", "--python", sys.executable, str(folder)])
    hashed = ["--require-hashes", "--only-binary", ":all:", *flags]
    # Compiled once here and not by every process that imports it: where Python may not write bytecode, starting an
    # engine takes 10 s of compiling, in each of its processes.
    hashed.append("--compile-bytecode")
    _uv(["pip", "install", "--python", str(folder / "bin" / "python"), *hashed, "--requirement", str(lock)])


def check_space(folder: Path, size_gib: int) -> None:
    """Refuse early what would fill the disk half-way.

    Raises:
        DiskSpaceError: less than the environment and a margin is free.
    """
    free = shutil.disk_usage(folder).free
    if free < (size_gib + MARGIN_GIB) * GIB:
        raise DiskSpaceError(
            f"{folder.parent} has {free / GIB:.1f} GiB free, {size_gib + MARGIN_GIB} are needed; "
            "free some, or set XDG_CACHE_HOME to a larger disk"
        )


def _uv(arguments: list[str]) -> None:
    live = on_terminal()
    code, said = run_uv(arguments if live else [*arguments, "--no-progress"], show=live)
    if not code:
        return
    if "hash mismatch" in said.lower():
        raise ChecksumError(f"a package is not the one the lock pins: {reason(said)}")
    raise InstallError(f"the stack could not be installed: {reason(said)}")


def _say(text: str) -> None:
    print(f"eyas: {text}", file=sys.stderr, flush=True)
