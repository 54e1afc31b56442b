"""Writing a store: locked, resumable, and finished only when every sample is accounted for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from pipeline.errors import SettingsError, StoreDamagedError, StoreMismatchError
from pipeline.store import manifest as manifests
from pipeline.store.account import Account, in_order
from pipeline.store.durable import told, write_synced
from pipeline.store.layout import LOCK, MANIFEST, REJECTED, SHARDS, TEMPORARY, WRITER_LOCK, unit_of
from pipeline.store.lock import WORKER_PATIENCE, StoreLock
from pipeline.store.records import CapturedSample, Rejection, UnitReport
from pipeline.store.sidecar import RejectedRecord, finished_units, read_sidecar
from pipeline.store.spec import StoreSpec, identity_sha256


class Store:
    """A store that this process may write to. Open it with `open_for_run`; close it, or use it in a `with`."""

    def __init__(self, folder: Path, manifest: dict[str, Any], lock: StoreLock) -> None:
        self.folder = folder
        self.discarded: list[str] = []
        """names of files that a kill or a damage had left unusable; removed, their units are to be done again"""
        self.finished_at_opening: set[int] = set()
        """see `finished_units`, which looks again"""
        self._manifest = manifest
        self._lock = lock

    @classmethod
    def open_for_run(
        cls,
        folder: Path,
        identity: Mapping[str, Any],
        info: Mapping[str, Any] | None = None,
        *,
        recheck: bool = False,
        repair: bool = False,
    ) -> Store:
        """Create a store, or take up one that was interrupted or damaged.

        Args:
            folder: the store's folder; made if missing.
            identity: what `manifest.store_identity` returns; must equal that of the store found there.
            info: noted in a new manifest for later readers, such as "model_path"; need not be the same.
            recheck: read finished units in full and compute their checksums again, instead of looking at their sizes.
            repair: do so, and write a damaged manifest anew.

        Raises:
            SettingsError: the folder holds something else, or cannot be written to.
            StoreBusyError: another process has it open.
            StoreMismatchError: it was made with other data or settings.
            StoreDamagedError: its manifest is damaged.
        """
        _make_folder(folder)
        lock = StoreLock(folder)
        try:
            # The writer of a run that was killed may be an engine's worker, which lives on for a moment.
            StoreLock(folder, WRITER_LOCK, WORKER_PATIENCE).release()
            manifest = _manifest(folder, identity, info, repair=repair)
            store = cls(folder, manifest, lock)
            store._remove_leftovers(recheck=recheck or repair)
        except BaseException:
            lock.release()
            raise
        return store

    @property
    def spec(self) -> StoreSpec:
        """What a writer of its units must know."""
        return StoreSpec.of(self.folder, self._manifest)

    def finished_units(self) -> set[int]:
        """Units that need not be done again: their record exists and their shard file has the size it names."""
        return finished_units(self.folder, self.spec.identity)

    def is_complete(self) -> bool:
        """Whether the store was finalised and no unit has gone missing since."""
        return manifests.is_complete(self.folder)

    def write_unit(
        self, index: int, samples: Sequence[CapturedSample], rejected: Sequence[Rejection] = ()
    ) -> UnitReport:
        """Write and commit a unit, see `pipeline.store.unit.write_unit`: for units that need not overlap anything."""
        from pipeline.store.unit import write_unit  # imports torch

        with ThreadPoolExecutor(max_workers=2, thread_name_prefix="hash") as pool:
            return write_unit(self.spec, index, samples, rejected, pool).commit()

    def finalise(self, plan_rejected: Iterable[Rejection | RejectedRecord], input_samples: int) -> dict[str, Any]:
        """Close the account, and write rejected.jsonl and the complete manifest.

        Args:
            plan_rejected: samples that no unit holds.
            input_samples: non-blank lines of the input.

        Returns:
            The manifest.

        Raises:
            AccountError: captured plus rejected is not the input, or an id was captured twice.
        """
        account = Account(self.folder, self.spec.identity)
        rejected = in_order([*map(_record, plan_rejected), *account.rejected])
        account.check(len(rejected), input_samples)
        written = write_synced(self.folder / REJECTED, (msgspec.json.encode(record) + b"\n" for record in rejected))
        self._manifest |= {
            "status": "complete",
            **account.fields(len(rejected)),
            "rejected_sha256": written.sha256,
        }
        manifests.write_manifest(self.folder, self._manifest)
        return dict(self._manifest)

    def close(self) -> None:
        """Let the next run in."""
        self._lock.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _remove_leftovers(self, *, recheck: bool) -> None:
        """Remove what an interrupted or damaged run left, so that every file of the folder is a finished unit's."""
        finished = self.finished_units()
        if recheck:
            finished = {unit for unit in finished if self._is_sound(unit)}
        self.finished_at_opening = finished
        for file in [*self.folder.iterdir(), *(self.folder / SHARDS).iterdir()]:
            in_shards = file.parent.name == SHARDS
            if file.name.endswith(TEMPORARY) or (in_shards and unit_of(file) not in finished):
                try:
                    file.unlink()
                except OSError as error:
                    raise told(error, file) from error
                self.discarded.append(file.name)
        if self._manifest["status"] == "complete" and len(finished) != self._manifest["counts"]["units"]:
            self._manifest["status"] = "incomplete"
            manifests.write_manifest(self.folder, self._manifest)

    def _is_sound(self, unit: int) -> bool:
        from pipeline.store.check import unit_faults  # imports torch

        faults, _ = unit_faults(self.spec, read_sidecar(self.folder, unit))
        return not faults


def _manifest(
    folder: Path, identity: Mapping[str, Any], info: Mapping[str, Any] | None, *, repair: bool
) -> dict[str, Any]:
    """The manifest of the store there, checked; of a new store, or of one whose own is damaged, a new one."""
    if (folder / MANIFEST).exists():
        try:
            manifest = manifests.read_manifest(folder)
        except StoreDamagedError:
            if not repair:
                raise
            _check_units_are_of(folder, identity)
        else:
            manifests.check_same(folder, manifest, identity)
            return manifest
    manifest = {**identity, "info": dict(info or {}), "status": "incomplete"}
    manifests.write_manifest(folder, manifest)
    return manifest


def _check_units_are_of(folder: Path, identity: Mapping[str, Any]) -> None:
    """Before a manifest is replaced: if no unit was made from what this run is given, the run is for another store.

    Raises:
        StoreMismatchError: so it is.
    """
    units = [unit for file in (folder / SHARDS).glob("*.json") if (unit := unit_of(file)) is not None]
    if units and not finished_units(folder, identity_sha256(identity)):
        raise StoreMismatchError(
            f"{folder / MANIFEST} is damaged and its {len(units):,} units were made with other data or settings than "
            "these: use the store's own again"
        )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = {file.name for file in folder.iterdir()}
        known = {LOCK, WRITER_LOCK, SHARDS, MANIFEST + TEMPORARY}
        if MANIFEST not in found and found - known:
            raise SettingsError(
                f"{folder} is not empty and is no store ({min(found - known)!r} is in it, {MANIFEST} is not): "
                "name another --output-dir"
            )
        (folder / SHARDS).mkdir(exist_ok=True)
    except OSError as error:
        raise SettingsError(f"cannot make the store {folder}: {error.strerror}") from error


def _record(rejection: Rejection | RejectedRecord) -> RejectedRecord:
    if isinstance(rejection, RejectedRecord):
        return rejection
    return RejectedRecord(rejection.id, rejection.line, rejection.reason)
