"""Which samples of a store go into another one, and what that makes of its identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.store.derive.source import Source
from pipeline.store.sidecar import Sidecar
from pipeline.store.spec import IDENTITY


@dataclass(frozen=True)
class Piece:
    """A unit of a store, or some samples of it, that becomes a unit of another store."""

    source: Source
    unit: int
    bytes: int
    """of its shard file"""
    keep: tuple[int, ...] | None = None
    """numbers of the samples in it; None: all of them"""


@dataclass
class Selection:
    """Samples of one store, in its order."""

    source: Source
    pieces: list[Piece] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def add(self, unit: Sidecar, keep: Sequence[int]) -> None:
        """Take samples of a unit, given by their numbers in it; none is right too."""
        if keep:
            cut = None if len(keep) == len(unit.samples) else tuple(keep)
            self.pieces.append(Piece(self.source, unit.unit, unit.bytes or 0, cut))
            self.ids += (unit.samples[at].id for at in keep)

    def identity(self) -> dict[str, Any]:
        """Of a store that holds these samples and no others of its source.

        `data` and `plan` of the digests become `derived_digest("select", <the source's>, <sha256 over the ids>)`, that
        one over a JSON string plus a newline for each id, in order of their code points.
        """
        lines = hashlib.sha256()
        for name in sorted(self.ids):
            lines.update(json.dumps(name).encode() + b"\n")
        digests = self.source.manifest["digests"]
        chosen = lines.hexdigest()
        changed = {name: derived_digest("select", [digests[name], chosen]) for name in ("data", "plan")}
        return identity_with(self.source.manifest, changed)


def derived_digest(how: str, of: Iterable[str]) -> str:
    """The sha256, in hex, over one line of JSON, `["<how>","<digest>",...]` and a newline: a digest made of others."""
    return hashlib.sha256(json.dumps([how, *of], separators=(",", ":")).encode() + b"\n").hexdigest()


def identity_with(manifest: Mapping[str, Any], digests: Mapping[str, str]) -> dict[str, Any]:
    """A store's identity (`pipeline.store.spec.IDENTITY`) with other digests."""
    identity = {name: manifest[name] for name in IDENTITY}
    return {**identity, "digests": {**identity["digests"], **digests}}


def provenance(how: str, sources: Sequence[Source]) -> dict[str, Any]:
    """What a derived store's `info` says: what the first source's does, and `made_by` and `made_from`."""
    made_from = [
        {"store": str(source.folder.absolute()), "store_digest": source.manifest["store_digest"]} for source in sources
    ]
    return {**sources[0].manifest["info"], "made_by": how, "made_from": made_from}
