"""Writing a store: locked, resumable, and finished only when every sample is accounted for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from pipeline.errors import AccountError, EngineError, SettingsError
from pipeline.store import manifest as manifests
from pipeline.store.digest import sidecars_digest, store_digest
from pipeline.store.layout import (
    FORMAT,
    LOCK,
    MANIFEST,
    REJECTED,
    SHARDS,
    TEMPORARY,
    sidecar_file,
    unit_of,
    write_synced,
)
from pipeline.store.lock import StoreLock
from pipeline.store.records import CapturedSample, Rejection
from pipeline.store.sidecar import (
    FileRecord,
    LayerRecord,
    RejectedRecord,
    SampleRecord,
    Sidecar,
    finished_units,
    read_sidecar,
)


class Store:
    """A store that this process may write to. Open it with `open_for_run`; close it, or use it in a `with`."""

    def __init__(self, folder: Path, manifest: dict[str, Any], lock: StoreLock) -> None:
        self.folder = folder
        self.discarded: list[str] = []
        """names of files that a kill or a damage had left unusable; removed, their units are to be done again"""
        self._manifest = manifest
        self._lock = lock

    @classmethod
    def open_for_run(cls, folder: Path, identity: Mapping[str, Any], info: Mapping[str, Any] | None = None) -> Store:
        """Create a store, or take up one that was interrupted.

        Args:
            folder: the store's folder; made if missing.
            identity: what `manifest.store_identity` returns; must equal that of the store found there.
            info: noted in a new manifest for later readers, such as "model_path"; need not be the same.

        Raises:
            SettingsError: the folder holds something else, or cannot be written to.
            StoreBusyError: another process has it open.
            StoreMismatchError: it was made with other data or settings.
            StoreDamagedError: its manifest is damaged.
        """
        _make_folder(folder)
        lock = StoreLock(folder)
        try:
            if (folder / MANIFEST).exists():
                manifest = manifests.read_manifest(folder)
                manifests.check_same(folder, manifest, identity)
            else:
                manifest = {**identity, "info": dict(info or {}), "status": "incomplete"}
                manifests.write_manifest(folder, manifest)
            store = cls(folder, manifest, lock)
            store._remove_leftovers()
        except BaseException:
            lock.release()
            raise
        return store

    def finished_units(self) -> set[int]:
        """Units that need not be done again: their record exists and their shard file has the size it names."""
        return finished_units(self.folder)

    def is_complete(self) -> bool:
        """Whether the store was finalised and no unit has gone missing since."""
        return manifests.is_complete(self.folder)

    def write_unit(self, index: int, samples: Sequence[CapturedSample], rejected: Sequence[Rejection] = ()) -> int:
        """Commit a unit: from its return on, no kill and no power cut can lose it. May be called from several threads.

        Args:
            index: the unit's number.
            samples: its samples with their states, in any order; none if all were rejected: there is no shard then.
            rejected: samples of the unit that could not be captured.

        Returns:
            Bytes written to the shard file.

        Raises:
            EngineError: states that are not one row per token, of the identity's layers, hidden size and dtype.
            NoSpaceError: the disk is full; nothing of the unit is left.
        """
        from pipeline.store.shard import write_shard  # imports torch

        for sample in samples:
            self._check_shape(sample)
        shard: FileRecord | None = None
        records, layers = list[SampleRecord](), list[LayerRecord]()
        if samples:
            shard, records, layers = write_shard(self.folder, index, samples, self._manifest["layer_ids"]["output"])
        sidecar = Sidecar(
            format=FORMAT,
            unit=index,
            shard=shard,
            rows=sum(record["rows"] for record in records),
            trained_tokens=sum(sum(sample.loss_mask) for sample in samples),
            samples=records,
            rejected=[_rejected_record(rejection) for rejection in rejected],
            layers=layers,
        )
        write_synced(sidecar_file(self.folder, index), [json.dumps(sidecar).encode() + b"\n"])
        return shard["bytes"] if shard else 0

    def finalise(self, plan_rejected: Iterable[Rejection], input_samples: int) -> dict[str, Any]:
        """Close the account, and write rejected.jsonl and the complete manifest.

        Args:
            plan_rejected: samples that no unit holds.
            input_samples: non-blank lines of the input.

        Returns:
            The manifest.

        Raises:
            AccountError: captured plus rejected is not the input, or an id was captured twice.
        """
        units = sorted(self.finished_units())
        sidecars = [read_sidecar(self.folder, unit) for unit in units]
        rejected = [_rejected_record(rejection) for rejection in plan_rejected]
        rejected += [record for sidecar in sidecars for record in sidecar["rejected"]]
        samples = [(sample["id"], sample["sha256"]) for sidecar in sidecars for sample in sidecar["samples"]]
        self._check_account(Counter(name for name, _ in samples), len(rejected), input_samples, units)
        written = write_synced(self.folder / REJECTED, _lines(rejected))
        self._manifest |= {
            "status": "complete",
            "counts": {
                "input": input_samples,
                "captured": len(samples),
                "rejected": len(rejected),
                "units": len(units),
                "rows": sum(sidecar["rows"] for sidecar in sidecars),
                "trained_tokens": sum(sidecar["trained_tokens"] for sidecar in sidecars),
                "shard_bytes": sum(sidecar["shard"]["bytes"] for sidecar in sidecars if sidecar["shard"]),
            },
            "rejected_sha256": written.sha256,
            "sidecars_sha256": sidecars_digest(self.folder, units),
            "store_digest": store_digest(samples),
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

    def _check_shape(self, sample: CapturedSample) -> None:
        wanted = (len(sample.input_ids), len(self._manifest["layer_ids"]["output"]), self._manifest["hidden_size"])
        states = sample.hidden_states
        dtype = str(states.dtype).removeprefix("torch.")
        if tuple(states.shape) != wanted or dtype != self._manifest["dtype"]:
            raise EngineError(
                f"the engine gave sample {sample.id!r} states {dtype} {list(states.shape)}, not "
                f"{self._manifest['dtype']} {list(wanted)}: this is a bug of the engine, nothing of the unit was kept"
            )

    def _check_account(self, captured: Counter[str], rejected: int, input_samples: int, units: Sequence[int]) -> None:
        twice = [name for name, times in captured.items() if times > 1]
        if twice:
            raise AccountError(f"{self.folder}: sample {twice[0]!r} was captured {captured[twice[0]]} times")
        if captured.total() + rejected != input_samples:
            raise AccountError(
                f"{self.folder}: {captured.total()} captured + {rejected} rejected is not {input_samples}, the input's "
                f"samples ({len(units)} units, highest {max(units, default=-1)}): run extract again to complete it"
            )

    def _remove_leftovers(self) -> None:
        """Remove what an interrupted or damaged run left, so that every file of the folder is a finished unit's."""
        finished = self.finished_units()
        for file in [*self.folder.iterdir(), *(self.folder / SHARDS).iterdir()]:
            in_shards = file.parent.name == SHARDS
            if file.name.endswith(TEMPORARY) or (in_shards and unit_of(file) not in finished):
                file.unlink()
                self.discarded.append(file.name)
        if self._manifest["status"] == "complete" and len(finished) != self._manifest["counts"]["units"]:
            self._manifest["status"] = "incomplete"
            manifests.write_manifest(self.folder, self._manifest)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = {file.name for file in folder.iterdir()}
        known = {LOCK, SHARDS, MANIFEST + TEMPORARY}
        if MANIFEST not in found and found - known:
            raise SettingsError(
                f"{folder} is not empty and is no store ({min(found - known)!r} is in it, {MANIFEST} is not): "
                "name another --output-dir"
            )
        (folder / SHARDS).mkdir(exist_ok=True)
    except OSError as error:
        raise SettingsError(f"cannot make the store {folder}: {error.strerror}") from error


def _rejected_record(rejection: Rejection) -> RejectedRecord:
    return cast(RejectedRecord, asdict(rejection))


def _lines(rejected: Iterable[RejectedRecord]) -> Iterator[bytes]:
    for record in sorted(rejected, key=lambda record: record["line"]):
        yield json.dumps(record).encode() + b"\n"
