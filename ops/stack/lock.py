"""Makes a stack's locks with uv: the whole closure of its requirements, every file by sha256."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from pathlib import Path

import tomlkit
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ops.atomic import write_text
from ops.errors import ChecksumError, LockError
from ops.stack.lockfile import Entry, Lock, parse_entries
from ops.stack.model import Accelerator
from ops.uv import reason, run_uv

FORM = ("--generate-hashes", "--no-header", "--no-annotate", "--no-progress")
PLATFORM = "sys_platform == 'linux' and platform_machine == 'x86_64'"


def make_lock(accelerator: Accelerator, current: Path) -> Lock:
    """Resolve the accelerator's requirements.

    Args:
        accelerator: the part of stack.toml to lock.
        current: the lock so far, if there is one: pins that still fit are kept.

    Raises:
        LockError: no set of packages satisfies the requirements, or the index cannot be reached.
        ChecksumError: the index's file of a package is not the one whose sha256 stack.toml pins.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyproject.toml").write_text(_settings(accelerator), encoding="utf-8")
        (folder / "requirements.in").write_text("\n".join(_requirements(accelerator)) + "\n", encoding="utf-8")
        output = folder / "lock"
        if current.is_file():
            output.write_bytes(current.read_bytes())
        code, said = run_uv(_command(accelerator, output), folder=folder)
        if code:
            raise LockError(f"[{accelerator.name}] cannot be locked: {reason(said)}")
        entries = parse_entries(output.read_text(encoding="utf-8"), f"{accelerator.name}.lock")
    return Lock(accelerator.inputs_digest(), tuple(_only_pinned(entry, _pinned(accelerator)) for entry in entries))


def make_tools_lock(source: Path, output: Path) -> None:
    """Lock the tools that the host side or the tests run with, for Linux and every Python that eyas starts on.

    Args:
        source: requirements, one a line.
        output: the lock, replaced when it could be made.

    Raises:
        LockError: no set of packages satisfies the requirements, or the index cannot be reached.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        uv = {"environments": ["sys_platform == 'linux' and python_full_version < '3.14'"]}
        (folder / "pyproject.toml").write_text(tomlkit.dumps({"tool": {"uv": uv}}), encoding="utf-8")
        made = folder / output.name
        if output.is_file():
            made.write_bytes(output.read_bytes())
        flags = ["--universal", "--python-version", "3.10", "--python", sys.executable, *FORM]
        code, said = run_uv(["pip", "compile", str(source), "--output-file", str(made), *flags], folder=folder)
        if code:
            raise LockError(f"{source} cannot be locked: {reason(said)}")
        write_text(output, made.read_text(encoding="utf-8"))


def _command(accelerator: Accelerator, output: Path) -> list[str]:
    sources = [part for build in accelerator.build for part in ("--no-binary", build.name)]
    return [
        *("pip", "compile", "requirements.in", "--output-file", str(output), "--python", sys.executable),
        *("--universal", "--python-version", _oldest_python(accelerator.python), "--only-binary", ":all:", *sources),
        *FORM,
    ]


def _requirements(accelerator: Accelerator) -> list[str]:
    vllm = [accelerator.vllm.requirement()] if accelerator.vllm else []
    builds = [line for build in accelerator.build for line in (f"{build.name}=={build.version}", *build.tools)]
    return [*accelerator.requirements, *vllm, *builds]


def _settings(accelerator: Accelerator) -> str:
    python = " and ".join(
        f"python_full_version {spec.operator} '{spec.version}'" for spec in SpecifierSet(accelerator.python)
    )
    never = [f"{name} ; sys_platform == 'never'" for name in accelerator.exclude]
    metadata = [
        {"name": build.name, "version": build.version, "requires-dist": list(build.requires)}
        for build in accelerator.build
    ]
    uv = {
        "environments": [f"{PLATFORM} and {python}"],
        "override-dependencies": [*accelerator.overrides, *never],
        "dependency-metadata": metadata,
    }
    return tomlkit.dumps({"tool": {"uv": uv}})


def _oldest_python(specifier: str) -> str:
    allowed = SpecifierSet(specifier)
    return next(f"3.{minor}" for minor in range(10, 100) if f"3.{minor}.99" in allowed)


def _pinned(accelerator: Accelerator) -> dict[str, str]:
    pins = {build.name: build.sha256 for build in accelerator.build}
    return pins | ({"vllm": accelerator.vllm.sha256} if accelerator.vllm else {})


def _only_pinned(entry: Entry, pins: dict[str, str]) -> Entry:
    """The entry with the one file that stack.toml pins, where it pins one."""
    pin = pins.get(entry.name)
    if pin is None:
        return entry
    if pin not in entry.hashes:
        raise ChecksumError(
            f"{entry.name} {entry.version}: the index has no file with sha256 {pin}, which stack.toml pins; "
            "check where the pin came from"
        )
    requirement = Requirement(str(entry.requirement))
    if requirement.url:
        # The hash stands on its own line; a second copy in the address could disagree with it.
        requirement.url = requirement.url.split("#", 1)[0]
    return dataclasses.replace(entry, requirement=requirement, hashes=(pin,))
