"""RUN/provenance.json: what every step was made from, what it made, with what, and how long it took.

It is a record for people (no host or user names, no absolute paths) and what the next run compares with. A step is
written down as started before its stage runs and as done after, so that a killed one is known for what it is.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.atomic import write_text
from ops.pipeline.digests import Digests
from ops.pipeline.errors import HeldError, MissingInputError

PROVENANCE = "provenance.json"
# What files looked like when they were hashed; may be removed at any time.
REMEMBERED = ".digests.json"
FORMAT = 1
STARTED, DONE = "started", "done"


@dataclass
class Provenance:
    """The file's content, and the file."""

    folder: Path
    content: dict[str, Any]

    def step(self, name: str) -> dict[str, Any] | None:
        """What is written down of a step."""
        return next((step for step in self.content["steps"] if step["step"] == name), None)

    def put(self, record: Mapping[str, Any], order: list[str], **about: Any) -> None:
        """Write a step down, in the place of what was, durably.

        Args:
            record: the step's.
            order: the names of all steps.
            about: what else is to stand in the file.
        """
        others = [step for step in self.content["steps"] if step["step"] != record["step"]]
        places = {name: place for place, name in enumerate(order)}
        steps = sorted([*others, dict(record)], key=lambda step: places.get(step["step"], len(places)))
        self.content = {"format": FORMAT, **about, "steps": steps}
        write_text(self.folder / PROVENANCE, json.dumps(self.content, indent=2) + "\n")
        _sync(self.folder)


def read(folder: Path) -> Provenance:
    """The provenance of a run folder; empty where there is none.

    Raises:
        MissingInputError: it cannot be read.
    """
    file = folder / PROVENANCE
    try:
        content = json.loads(file.read_bytes())
        if content["format"] != FORMAT or not all(step["made_from"] for step in content["steps"]):
            raise ValueError(f"format {content['format']}, not {FORMAT}")
    except FileNotFoundError:
        content = {"format": FORMAT, "steps": []}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MissingInputError(
            f"{file} cannot be read ({error!r}): restore it, or move it away, and steps that cannot be told to be "
            "unchanged run again"
        ) from error
    return Provenance(folder, content)


def fingerprint(made_from: Mapping[str, Any]) -> str:
    """Hex sha256 over all that a step was made from."""
    return hashlib.sha256(json.dumps(made_from, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Make a run folder and hold it for this process; the kernel lets go of a killed one's.

    Raises:
        HeldError: another pipeline has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise HeldError(f"another pipeline works in {folder}: wait for it, or give another --run-dir") from error
    finally:
        os.close(handle)


def known_digests(folder: Path) -> Digests:
    """Digests that know what was hashed before in this run folder."""
    try:
        return Digests(dict(json.loads((folder / REMEMBERED).read_bytes())))
    except (OSError, ValueError, TypeError):
        return Digests()


@contextmanager
def remembered(folder: Path) -> Iterator[Digests]:
    """The same, and what is hashed within is remembered after."""
    digests = known_digests(folder)
    try:
        yield digests
    finally:
        write_text(folder / REMEMBERED, json.dumps(digests.known))


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
