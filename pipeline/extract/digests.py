"""What a store was made from, as sha256 digests: the data, the target and the stack."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.errors import InputError

_MIB = 1 << 20
WHOLE_FILE_LIMIT = 16 * _MIB
"""Larger files of a target are recognised by size, first and last MiB: hashing 540 GB of weights takes longer than
loading them. A safetensors file's header (names, shapes, offsets) lies in its first MiB. A change in the middle of a
large file that keeps its size goes unseen."""


def data_digest(file: Path) -> str:
    """The sha256 of a file's bytes, in hex.

    Raises:
        InputError: the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with file.open("rb") as stream:
            while chunk := stream.read(_MIB):
                digest.update(chunk)
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    return digest.hexdigest()


def model_digest(folder: Path) -> str:
    """A digest of a target's folder: its files' names, sizes and content.

    One line of JSON `[name, size, sha256]` per file, in order of the names (relative, with "/"), hashed. Up to 16 MiB
    the sha256 is the content's; of a larger file it is that of its first and last MiB. Hidden files and folders
    (download caches) do not count; links do, as what they point to.

    Raises:
        InputError: no config.json in the folder, or a file that cannot be read.
    """
    if not (folder / "config.json").is_file():
        raise InputError(f"no target model at {folder}: there is no config.json in it")
    digest = hashlib.sha256()
    for name in sorted(_visible_files(folder)):
        file = folder / name
        try:
            row = [name, file.stat().st_size, _file_sha256(file)]
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}") from error
        digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()


def stack_identity() -> dict[str, Any]:
    """What the environment that runs this was made of: `stack.json` at its root.

    `EYAS_STACK_JSON` names another file (tests, and environments made by hand).

    Returns:
        `name`, `accelerator`, `digest`, `python` and `patches`.

    Raises:
        InputError: there is no such file, or it is not what the host side writes.
    """
    file = Path(os.environ.get("EYAS_STACK_JSON") or Path(sys.prefix) / "stack.json")
    try:
        stack = json.loads(file.read_bytes())
    except FileNotFoundError as error:
        raise InputError(
            f"{sys.executable} is no stack's environment: {file} is missing; run this stage as ./eyas extract, which "
            "installs the stack and runs inside it"
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {file}: {error}; remove this environment and run ./eyas extract") from error
    if not isinstance(stack, dict) or not isinstance(stack.get("digest"), str):
        raise InputError(f"{file} names no stack digest; remove this environment and run ./eyas extract")
    return stack


def _visible_files(folder: Path) -> Iterator[str]:
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        for name in files:
            if not name.startswith("."):
                yield (Path(parent) / name).relative_to(folder).as_posix()


def _file_sha256(file: Path) -> str:
    size = file.stat().st_size
    if size <= WHOLE_FILE_LIMIT:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    with file.open("rb") as stream:
        digest = hashlib.sha256(stream.read(_MIB))
        stream.seek(size - _MIB)
        digest.update(stream.read(_MIB))
    return digest.hexdigest()
