"""Reads the samples that prepare wrote, one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.errors import InputError


def read_objects(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file that prepare wrote.

    Raises:
        InputError: it is missing or not as prepare writes it.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield _parse(line, f"{path}:{number}")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _parse(line: str, place: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise InputError(f"{place}: not JSON, so not as prepare wrote it: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{place}: not an object, so not as prepare wrote it")
    return found
