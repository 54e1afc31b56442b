"""Several stores out of one, each sample in just one of them."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

from pipeline.errors import SettingsError
from pipeline.store.derive.build import Built, Progress, build, refuse_finished, require_samples
from pipeline.store.derive.ids import check_known, read_ids
from pipeline.store.derive.selection import Selection, provenance
from pipeline.store.derive.source import Source
from pipeline.store.sidecar import RejectedRecord, Sidecar

WITH, WITHOUT = "with", "without"


def split_parts(store: Path, parts: int, folder: Path, progress: Progress = lambda done, of: None) -> list[Built]:
    """Cut a store into parts of whole units, one after the other, of about as many rows each.

    Args:
        store: a complete store.
        parts: how many.
        folder: gets `part-000`, `part-001`, ... The rejected samples go to the first.
        progress: see `build`.

    Raises:
        SettingsError: not from 1 to the store's units, or the parts are there already.
        UserError: others, as `Source` and `build`.
    """
    source = Source(store)
    rows = [unit.rows for unit in _filled(source)]
    if not 1 <= parts <= len(rows):
        raise SettingsError(f"--parts must be from 1 to {len(rows):,}, the units of {source.folder}, not {parts}")
    cuts = balanced_cuts(rows, parts)
    chosen = [Selection(source) for _ in range(parts)]
    for at, unit in enumerate(_filled(source)):
        chosen[bisect.bisect_right(cuts, at) - 1].add(unit, range(len(unit.samples)))
    selections = {f"part-{number:03d}": selection for number, selection in enumerate(chosen)}
    return _build_all(source, folder, selections, {"part-000": source.rejected()}, progress)


def split_ids(store: Path, ids_file: Path, folder: Path, progress: Progress = lambda done, of: None) -> list[Built]:
    """Cut a store into the samples that a file names and the others.

    Units that are on one side are linked, those on both are written twice, in part.

    Args:
        store: a complete store.
        ids_file: one id a line.
        folder: gets `with` and `without`; a rejected sample goes where its id belongs, without an id to `without`.
        progress: see `build`.

    Raises:
        SettingsError: the two are there already.
        NoSamplesError: no captured sample is on one of the sides.
        InputError: the file cannot be read, or names a sample that the store does not have.
        UserError: others, as `Source` and `build`.
    """
    source, ids = Source(store), read_ids(ids_file)
    inside, outside = Selection(source), Selection(source)
    for unit in source.sidecars():
        named = [sample.id in ids for sample in unit.samples]
        inside.add(unit, [at for at, is_named in enumerate(named) if is_named])
        outside.add(unit, [at for at, is_named in enumerate(named) if not is_named])
    rejected: dict[str, list[RejectedRecord]] = {WITH: [], WITHOUT: []}
    for record in source.rejected():
        rejected[WITH if record.id in ids else WITHOUT].append(record)
    check_known(ids, itertools.chain(inside.ids, (record.id for record in rejected[WITH])), ids_file, source.folder)
    return _build_all(source, folder, {WITH: inside, WITHOUT: outside}, rejected, progress)


def balanced_cuts(rows: Sequence[int], parts: int) -> list[int]:
    """Where to cut a list of units so that the parts have about as many rows: each cut is where its ideal is nearest.

    Args:
        rows: of each unit.
        parts: at most as many as units; none is empty.

    Returns:
        `parts + 1` positions, from 0 to the number of units.
    """
    before = [0, *itertools.accumulate(rows)]
    cuts = [0]
    for part in range(1, parts):
        ideal = before[-1] * part / parts
        at = bisect.bisect_left(before, ideal)
        at -= ideal - before[at - 1] < before[at] - ideal
        cuts.append(min(max(at, cuts[-1] + 1), len(rows) - (parts - part)))
    return [*cuts, len(rows)]


def _filled(source: Source) -> Iterable[Sidecar]:
    return (unit for unit in source.sidecars() if unit.samples)


def _build_all(
    source: Source,
    folder: Path,
    selections: dict[str, Selection],
    rejected: dict[str, list[RejectedRecord]],
    progress: Progress,
) -> list[Built]:
    for name, selection in selections.items():
        require_samples(folder / name, selection.pieces)
    _refuse_others(folder, selections)
    refuse_finished([folder / name for name in selections])
    return [
        build(
            folder / name,
            identity=selection.identity(),
            info=provenance("split", [source]),
            pieces=selection.pieces,
            rejected=rejected.get(name, []),
            input_samples=len(selection.ids) + len(rejected.get(name, [])),
            progress=progress,
        )
        for name, selection in selections.items()
    ]


def _refuse_others(folder: Path, names: Iterable[str]) -> None:
    try:
        others = {file.name for file in folder.iterdir()} - set(names)
    except FileNotFoundError:
        return
    except OSError as error:
        raise SettingsError(f"cannot read {folder}: {error.strerror}: name another --output-dir") from error
    if others:
        raise SettingsError(f"{folder} is not empty ({min(others)!r} is in it): name another --output-dir")
