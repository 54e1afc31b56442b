"""`./eyas stack.verify`: whether a stack's files agree with each other, and the installed environment with them."""

from __future__ import annotations

import json
from importlib.metadata import distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from ops.errors import InstallError, LockError
from ops.patches.verify import verify as verify_patches
from ops.stack.digest import patch_list, stack_digest
from ops.stack.lockfile import Lock, installed_here, read_lock, remedy
from ops.stack.model import Accelerator, Stack


def check_lock(accelerator: Accelerator, path: Path) -> Lock:
    """Check that a lock is whole and made from stack.toml as it is now. Needs no network.

    Raises:
        LockError: it is missing, out of date, or lacks something stack.toml pins.
    """
    lock = read_lock(path)
    if lock.inputs_sha256 != accelerator.inputs_digest():
        raise LockError(f"{path} is out of date: stack.toml has changed since; make it again: {remedy(path)}")
    hashes = {entry.name: entry.hashes for entry in lock.entries}
    pins = {build.name: build.sha256 for build in accelerator.build}
    pins |= {"vllm": accelerator.vllm.sha256} if accelerator.vllm else {}
    for name, sha256 in pins.items():
        if hashes.get(canonicalize_name(name)) != (sha256,):
            raise LockError(f"{path} does not pin {name} to the sha256 in stack.toml; make it again: {remedy(path)}")
    return lock


def check_environment(stack: Stack, accelerator: str, environment: Path, markers: dict[str, str]) -> int:
    """Check an installed environment: its stack.json, its patches, and its packages against the lock.

    Args:
        stack: the stack it was made from.
        accelerator: which of its parts.
        environment: root of the environment.
        markers: the marker variables of its Python, see packaging.markers.default_environment.

    Returns:
        The number of packages in it.

    Raises:
        InstallError: something differs from what the stack pins.
        UserError: the patches are not all applied (exit codes 10 to 17).
    """
    again = f"remove {environment} and run again"
    identity = json.loads((environment / "stack.json").read_text(encoding="utf-8"))
    wanted = {"digest": stack_digest(stack, accelerator), "patches": patch_list(stack)}
    for key, value in wanted.items():
        if identity.get(key) != value:
            raise InstallError(f"{environment / 'stack.json'}: {key} is not the stack's; {again}")
    site_packages = find_site_packages(environment)
    if stack.series is not None:
        verify_patches(stack.series, site_packages)
    pinned = installed_here(read_lock(stack.lock(accelerator)).entries, markers)
    found = installed_packages(site_packages)
    for name in sorted(pinned.keys() | found.keys()):
        if pinned.get(name) != found.get(name):
            raise InstallError(
                f"{environment} has {name} {found.get(name, 'not at all')}, "
                f"the lock {pinned.get(name, 'not at all')}; {again}"
            )
    return len(found)


def installed_packages(site_packages: Path) -> dict[str, str]:
    """Normalised name to version of every distribution in a site-packages folder."""
    found = distributions(path=[str(site_packages)])
    return {str(canonicalize_name(d.metadata["Name"])): d.version for d in found}


def find_site_packages(environment: Path) -> Path:
    """The environment's site-packages.

    Raises:
        InstallError: it has none.
    """
    found = sorted(environment.glob("lib/python3.*/site-packages"))
    if not found:
        raise InstallError(f"{environment} has no site-packages; remove it and run again")
    return found[0]
