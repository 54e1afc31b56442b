"""A finished store's account: one pass over its records, and what the manifest says of them all. Imports no torch."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from pipeline.errors import AccountError
from pipeline.store.digest import hash_lines, store_digest
from pipeline.store.layers import whole_layers
from pipeline.store.layout import sidecar_file
from pipeline.store.sidecar import RejectedRecord, Sidecar, whole_records


class Account:
    """Counts, digests and statistics over the finished units of a store.

    Of a sample it keeps the id and 32 bytes: a million samples are some 200 MB.
    """

    def __init__(self, store: Path, identity: str) -> None:
        """Read every record once.

        Args:
            store: its folder.
            identity: see `Sidecar.identity`; units of another one do not count.
        """
        self._store = store
        self._samples: list[tuple[str, bytes]] = []
        self._records: list[tuple[str, str]] = []
        self._units: list[Sidecar] = []
        self.rejected: list[RejectedRecord] = []
        """samples that the units could not capture"""
        for sidecar, content in whole_records(store, identity):
            self._samples += [(sample.id, bytes.fromhex(sample.sha256)) for sample in sidecar.samples]
            self._records.append((sidecar_file(store, sidecar.unit).name, hashlib.sha256(content).hexdigest()))
            self.rejected += sidecar.rejected
            self._units.append(msgspec.structs.replace(sidecar, samples=[], rejected=[]))
        self._samples.sort()

    def check(self, rejected: int, input_samples: int) -> None:
        """See that every sample of the input is in the store or rejected, once.

        Args:
            rejected: samples that are in no shard.
            input_samples: samples there were to begin with.

        Raises:
            AccountError: captured plus rejected is not the input, or an id was captured twice.
        """
        for (name, _), (following, _) in itertools.pairwise(self._samples):
            if name == following:
                raise AccountError(f"{self._store}: sample {name!r} was captured more than once")
        captured = len(self._samples)
        if captured + rejected != input_samples:
            raise AccountError(
                f"{self._store}: {captured} captured + {rejected} rejected is not {input_samples}, the input's samples "
                f"({len(self._units)} units, highest {max((unit.unit for unit in self._units), default=-1)}): run "
                "extract again to complete it"
            )

    def fields(self, rejected: int) -> dict[str, Any]:
        """What the manifest of a complete store says of its units.

        Args:
            rejected: samples that are in no shard.
        """
        return {
            "counts": {
                "input": len(self._samples) + rejected,
                "captured": len(self._samples),
                "rejected": rejected,
                "units": len(self._units),
                "rows": sum(unit.rows for unit in self._units),
                "trained_tokens": sum(unit.trained_tokens for unit in self._units),
                "shard_bytes": sum(unit.bytes or 0 for unit in self._units),
            },
            "layers": whole_layers(self._units),
            "sidecars_sha256": hash_lines(self._records),
            "store_digest": self._digest(),
        }

    def _digest(self) -> str:
        return store_digest((name, sha256.hex()) for name, sha256 in self._samples)


def in_order(rejected: Iterable[RejectedRecord]) -> list[RejectedRecord]:
    """Rejected samples in the order of rejected.jsonl: by source, then by line."""
    return sorted(rejected, key=lambda record: (record.source or "", record.line or 0))
