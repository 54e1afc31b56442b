"""A complete store that another is made of. Imports no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pipeline.errors import StoreDamagedError
from pipeline.store.digest import hash_lines
from pipeline.store.layout import REJECTED, sidecar_file, store_in
from pipeline.store.manifest import read_manifest
from pipeline.store.sidecar import RejectedRecord, Sidecar, read_sidecar, whole_records
from pipeline.store.spec import StoreSpec

_LINES = msgspec.json.Decoder(RejectedRecord)


class Source:
    """A store to be read only: its records are those that its manifest names, its shard files are as long as they say.

    Samples' hashes are not computed again: a shard that is linked is as sound as it was.
    """

    def __init__(self, folder: Path) -> None:
        """Read the manifest and look at every record.

        Args:
            folder: the store, or a run's folder with store/ in it.

        Raises:
            InputError: there is no store.
            StoreMismatchError: it is of another format version.
            StoreDamagedError: it is not complete, or not what was written.
        """
        self.folder = store_in(folder)
        self.manifest: dict[str, Any] = read_manifest(self.folder)
        if self.manifest["status"] != "complete":
            raise StoreDamagedError(
                f"{self.folder} is not finished: run its extract (or merge, split, prune) to the end"
            )
        self.spec = StoreSpec.of(self.folder, self.manifest)
        self.units, records = list[int](), list[tuple[str, str]]()
        for sidecar, content in whole_records(self.folder, self.spec.identity):
            self.units.append(sidecar.unit)
            records.append((sidecar_file(self.folder, sidecar.unit).name, hashlib.sha256(content).hexdigest()))
        counted = self.manifest["counts"]["units"]
        if len(self.units) != counted:
            raise self._damaged(f"{len(self.units):,} of its {counted:,} units are whole")
        if hash_lines(records) != self.manifest["sidecars_sha256"]:
            raise self._damaged("its records are not those that its manifest names")

    def sidecars(self) -> Iterator[Sidecar]:
        """The units' records, in order; read anew each time, so that those of a million samples need no room."""
        return (read_sidecar(self.folder, unit) for unit in self.units)

    def rejected(self) -> list[RejectedRecord]:
        """The lines of rejected.jsonl, each with the data that its line counts in.

        Raises:
            StoreDamagedError: the file is not what was written.
        """
        try:
            content = (self.folder / REJECTED).read_bytes()
        except OSError as error:
            raise self._damaged(f"{REJECTED} cannot be read: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != self.manifest["rejected_sha256"]:
            raise self._damaged(f"{REJECTED} is not the file that was written")
        return [self._with_source(record) for record in _LINES.decode_lines(content)]

    def _with_source(self, record: RejectedRecord) -> RejectedRecord:
        if record.source is not None or record.line is None:
            return record
        return msgspec.structs.replace(record, source=self.manifest["digests"]["data"])

    def _damaged(self, what: str) -> StoreDamagedError:
        return StoreDamagedError(f"{self.folder} is damaged: {what}; verify tells which, and what to do")
