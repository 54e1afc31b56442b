"""Pins a stack to a vLLM nightly: wheel found, downloaded, checked, recorded in stack.toml, lock made again."""

from __future__ import annotations

import tempfile
from pathlib import Path

import tomlkit

from ops.atomic import write_text
from ops.errors import ChecksumError, StackError
from ops.paths import cache_root
from ops.stack.lock import make_lock
from ops.stack.model import VllmPin, load, parse
from ops.stack.nightly import DEFAULT_INDEX, check_commit, check_wheel, download, find_wheel


def pin_nightly(folder: Path, commit: str, *, index: str = "", sha256: str = "") -> VllmPin:
    """Make the stack's [cuda.vllm] the nightly of `commit`, and its lock fit.

    On any failure stack.toml and the lock stay as they were.

    Args:
        folder: the stack's folder.
        commit: all 40 hex digits.
        index: base address of the wheels; empty for vLLM's own.
        sha256: what the wheel must have, where it is known from elsewhere.

    Raises:
        StackError: the commit is no full hash, or the stack pins no vLLM for CUDA.
        NotAtIndexError, TruncatedError, ChecksumError: see ops.stack.nightly.
        LockError: the nightly fits no set of packages.
    """
    commit = check_commit(commit)
    if load(folder).accelerator("cuda").vllm is None:
        raise StackError(f"{folder / 'stack.toml'} has no [cuda.vllm] to pin")
    wheel = find_wheel(index or DEFAULT_INDEX, commit)
    downloads = cache_root() / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=downloads) as temporary:
        path, found = download(wheel, Path(temporary))
        for wanted, source in ((sha256.lower(), "--sha256"), (wheel.sha256, "the index")):
            if wanted and wanted != found:
                raise ChecksumError(f"{path.name} has sha256 {found}, {source} says {wanted}; nothing was pinned")
        version = check_wheel(path, commit)
    pin = VllmPin(version=version, sha256=found, commit=commit, url=wheel.url)
    _record(folder, pin)
    return pin


def _record(folder: Path, pin: VllmPin) -> None:
    toml = folder / "stack.toml"
    document = tomlkit.parse(toml.read_text(encoding="utf-8"))
    table = document["cuda"]["vllm"]
    table.update(vars(pin))
    text = tomlkit.dumps(document)
    stack = parse(text, folder)
    lock = make_lock(stack.accelerator("cuda"), stack.lock("cuda"))
    # Two files cannot change in one step. The lock names the stack.toml it was made from, so that a kill between
    # the two shows as a lock out of date.
    write_text(stack.lock("cuda"), lock.text())
    write_text(toml, text)
