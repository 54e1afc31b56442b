"""A store without some of another's samples, which are listed as rejected."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import SettingsError
from pipeline.store.derive.build import Built, Progress, build, refuse_finished, require_samples
from pipeline.store.derive.ids import check_known, read_ids
from pipeline.store.derive.selection import Selection, provenance
from pipeline.store.derive.source import Source
from pipeline.store.layout import shard_file
from pipeline.store.sidecar import RejectedRecord, Sidecar


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which samples are to go: those that any of these is true of."""

    ids_file: Path | None = None
    """it names them, one id a line"""
    shorter_than: int | None = None
    """tokens"""
    longer_than: int | None = None
    """tokens"""
    untrained: bool = False
    """no token of theirs is trained on"""


def prune(store: Path, wanted: Wanted, folder: Path, progress: Progress = lambda done, of: None) -> Built:
    """Make a store of the samples that stay; the old store stays as it is.

    Units that lose nothing are linked, those that lose some samples are written anew, those that lose all are left out.

    Args:
        store: a complete store.
        wanted: what goes. Such samples are in the new store's rejected.jsonl, their reason begins with "pruned: ".
        folder: of the new store: missing, empty, or this prune interrupted.
        progress: see `build`.

    Raises:
        SettingsError: nothing says what goes, or the folder is a complete store.
        NoSamplesError: nothing would stay.
        InputError: the file of ids cannot be read, or names a sample that the store does not have.
        UserError: others, as `Source` and `build`.
    """
    if wanted == Wanted():
        raise SettingsError("prune needs to know what goes: --ids, --shorter-than, --longer-than or --untrained")
    refuse_finished([folder])
    source = Source(store)
    ids = read_ids(wanted.ids_file) if wanted.ids_file else set[str]()
    kept, rejected = Selection(source), source.rejected()
    known = {record.id for record in rejected}
    for unit in source.sidecars():
        reasons = list(_reasons(source, unit, wanted, ids))
        kept.add(unit, [at for at, reason in enumerate(reasons) if reason is None])
        gone = [
            RejectedRecord(sample.id, None, f"pruned: {reason}")
            for sample, reason in zip(unit.samples, reasons, strict=True)
            if reason
        ]
        rejected += gone
        known.update(record.id for record in gone)
    if wanted.ids_file:
        check_known(ids, known, wanted.ids_file, source.folder)
    require_samples(folder, kept.pieces)
    return build(
        folder,
        identity=kept.identity(),
        info=provenance("prune", [source]),
        pieces=kept.pieces,
        rejected=rejected,
        input_samples=source.manifest["counts"]["input"],
        progress=progress,
    )


def _reasons(source: Source, unit: Sidecar, wanted: Wanted, ids: set[str]) -> Iterator[str | None]:
    """Why each sample of a unit goes; None: it stays."""
    trained = _trained(source, unit) if wanted.untrained and unit.samples else itertools.repeat(True)
    for sample, is_trained in zip(unit.samples, trained, strict=False):
        if wanted.ids_file is not None and sample.id in ids:
            yield f"named in {wanted.ids_file.name}"
        elif wanted.shorter_than is not None and sample.rows < wanted.shorter_than:
            yield f"{sample.rows} tokens, shorter than {wanted.shorter_than}"
        elif wanted.longer_than is not None and sample.rows > wanted.longer_than:
            yield f"{sample.rows} tokens, longer than {wanted.longer_than}"
        else:
            yield None if is_trained else "no trained token"


def _trained(source: Source, unit: Sidecar) -> Sequence[bool]:
    from pipeline.store.shard import MappedShard  # imports torch, which the records need not

    mask = MappedShard(shard_file(source.folder, unit.unit)).tensors["loss_mask"]
    ends = list(itertools.accumulate(sample.rows for sample in unit.samples))
    return [bool(mask[start:end].any()) for start, end in itertools.pairwise([0, *ends])]
