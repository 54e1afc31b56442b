"""One store out of several of the same target and settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from pipeline.errors import AccountError, SettingsError, StoreMismatchError
from pipeline.store.derive.build import Built, Progress, build, refuse_finished
from pipeline.store.derive.selection import Piece, derived_digest, identity_with, provenance
from pipeline.store.derive.source import Source
from pipeline.store.manifest import differing_fields

_OF_DATA = ("data", "plan")
"""the digests that parts of one store differ in"""


def merge(folder: Path, parts: Sequence[Path], progress: Progress = lambda done, of: None) -> Built:
    """Make a store of all samples of other stores; their units in the order given.

    Args:
        folder: of the new store: missing, empty, or this merge interrupted.
        parts: complete stores that share no sample.
        progress: see `build`.

    Raises:
        SettingsError: no parts, or the folder is a complete store.
        StoreMismatchError: parts differ in more than their data.
        AccountError: a sample is in two of them.
        UserError: others, as `Source` and `build`.
    """
    if not parts:
        raise SettingsError("merge needs the stores to merge")
    refuse_finished([folder])
    sources = [Source(part) for part in parts]
    for source in sources[1:]:
        _check_alike(sources[0], source)
    pieces = list(_pieces(sources))
    digests = {
        name: derived_digest("merge", (source.manifest["digests"][name] for source in sources)) for name in _OF_DATA
    }
    return build(
        folder,
        identity=identity_with(sources[0].manifest, digests),
        info=provenance("merge", sources),
        pieces=pieces,
        rejected=chain.from_iterable(source.rejected() for source in sources),
        input_samples=sum(source.manifest["counts"]["input"] for source in sources),
        progress=progress,
    )


def _check_alike(one: Source, two: Source) -> None:
    of_data = {f"digests.{name}" for name in _OF_DATA}
    differing = [
        f"{name} {there} in {one.folder}, {here} in {two.folder}"
        for name, there, here in differing_fields(one.manifest, two.manifest)
        if name not in of_data
    ]
    if differing:
        raise StoreMismatchError(f"these stores cannot be one: {'; '.join(differing)}; merge those that are alike")


def _pieces(sources: Sequence[Source]) -> Iterable[Piece]:
    seen: dict[str, Source] = {}
    for source in sources:
        for unit in source.sidecars():
            for sample in unit.samples:
                if sample.id in seen:
                    raise AccountError(
                        f"sample {sample.id!r} is in {seen[sample.id].folder} and in {source.folder}: a store holds a "
                        "sample once; prune it from one of them"
                    )
                seen[sample.id] = source
            if unit.samples:
                yield Piece(source, unit.unit, unit.bytes or 0)
