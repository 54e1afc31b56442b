"""Writing a store out of pieces of others: locked, resumable and finished in the end as any store is."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from pipeline.errors import NoSamplesError, NoSpaceError, SettingsError
from pipeline.store.derive.place import can_link, place_unit
from pipeline.store.derive.selection import Piece
from pipeline.store.derive.source import Source
from pipeline.store.layout import shard_file
from pipeline.store.manifest import is_complete
from pipeline.store.sidecar import RejectedRecord
from pipeline.store.spec import StoreSpec
from pipeline.store.writer import Store

_LINKERS = 16
"""Threads that link: they wait for syncs of small files, of which a file system does many at once. Measured on ext4, a
unit takes 13 ms with one thread and 0.4 ms with 16."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Built:
    """A finished store, and what was done for it by this run."""

    folder: Path
    manifest: dict[str, Any]
    linked: int
    """units whose shard file was linked"""
    copied: int
    rewritten: int
    """units of which some samples were taken"""
    written: int
    """bytes of copied and rewritten shard files"""


def refuse_finished(folders: Sequence[Path]) -> None:
    """Refuse to make what is there.

    Raises:
        SettingsError: every one of these folders is a complete store.
    """
    if all(is_complete(folder) for folder in folders):
        raise SettingsError(f"{folders[0]} is a complete store already: remove it, or name another folder")


def require_samples(folder: Path, pieces: Sequence[Piece]) -> None:
    """Refuse to make a store of no samples.

    Raises:
        NoSamplesError: it would be one.
    """
    if not pieces:
        raise NoSamplesError(f"no captured sample is left for {folder}: nothing was written")


def build(  # noqa: PLR0913 - keyword-only
    folder: Path,
    *,
    identity: Mapping[str, Any],
    info: Mapping[str, Any],
    pieces: Sequence[Piece],
    rejected: Iterable[RejectedRecord],
    input_samples: int,
    progress: Progress = lambda done, of: None,
) -> Built:
    """Make a store, or go on with one whose making was interrupted.

    Args:
        folder: of the new store.
        identity: of it, see `pipeline.store.manifest.store_identity`.
        info: for its manifest.
        pieces: its units, in order.
        rejected: all of its rejected samples.
        input_samples: captured and rejected ones together.
        progress: called with the units done and how many there are.

    Raises:
        NoSpaceError: what must be written does not fit.
        StoreDamagedError: a source is not what was written.
        UserError: others, as `Store.open_for_run` and `Store.finalise`.
    """
    with Store.open_for_run(folder, identity, info) as store:
        done = store.finished_at_opening
        todo = [(unit, piece) for unit, piece in enumerate(pieces) if unit not in done]
        _check_space(store.folder, [piece for _, piece in todo])
        count = dict.fromkeys(("linked", "copied", "rewritten", "written"), 0)
        for number, (how, size) in enumerate(_make(store.spec, todo), start=1):
            progress(number, len(todo))
            count[how] += 1
            count["written"] += size
        return Built(folder, store.finalise(rejected, input_samples), **count)


def _make(spec: StoreSpec, todo: Sequence[tuple[int, Piece]]) -> Iterable[tuple[str, int]]:
    """How each unit was made, and the bytes that were written for it."""
    whole = [(unit, piece) for unit, piece in todo if piece.keep is None]
    with ThreadPoolExecutor(_LINKERS, "link") as pool:
        yield from pool.map(lambda job: _place(spec, *job), whole)
    for unit, piece in todo:
        if piece.keep is not None:
            from pipeline.store.derive.rewrite import rewrite_unit  # imports torch

            yield "rewritten", rewrite_unit(spec, unit, piece.source.spec, piece.unit, piece.keep)


def _place(spec: StoreSpec, unit: int, piece: Piece) -> tuple[str, int]:
    linked = place_unit(spec, unit, piece.source.spec, piece.unit)
    return ("linked", 0) if linked else ("copied", piece.bytes)


def _check_space(folder: Path, pieces: Iterable[Piece]) -> None:
    linkable: dict[Source, bool] = {}
    needed = 0
    for piece in pieces:
        if piece.source not in linkable:
            linkable[piece.source] = can_link(shard_file(piece.source.folder, piece.unit), folder)
        needed += piece.bytes if piece.keep or not linkable[piece.source] else 0
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise NoSpaceError(
            f"{folder} needs up to {decimal(needed)} for what cannot be linked, and its disk has {decimal(free)} free: "
            "free some, or name a folder on the file system of the stores"
        )
