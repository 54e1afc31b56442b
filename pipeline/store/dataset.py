"""A store as a trainer reads it: random access by number, several processes, shuffled shard by shard.

dataset = HiddenStateDataset(Path("runs/demo/store"))
for sample in DataLoader(dataset, batch_size=None, sampler=ShardShuffle(dataset, seed=0), num_workers=2):
    sample["hidden_states"], sample["input_ids"], sample["loss_mask"]
"""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from pipeline.errors import InputError, StoreDamagedError
from pipeline.store.check import shape_faults
from pipeline.store.index import StoreIndex, read_index
from pipeline.store.reader import OpenShard
from pipeline.store.sidecar import Sidecar, read_sidecar
from pipeline.store.spec import StoreSpec

Check = Literal["none", "lengths", "digests"]

OPEN_SHARDS = 64
"""Shards that a process keeps mapped, each with a file descriptor (of 1,024 that a process usually has) and its address
space: 30 GB of them for Kimi-K2.5 (470 MB a shard), of 128 TB. To open one again takes 0.2 ms."""


_REDO = "run extract with --repair to make it anew"


class Sample(TypedDict):
    """What the dataset yields; one row per token."""

    id: str
    hidden_states: torch.Tensor
    """`[rows, layers, hidden]`; where the storage allows it a view of the file, so clone it before changing it"""
    input_ids: torch.Tensor
    """int64 `[rows]`"""
    loss_mask: torch.Tensor
    """uint8 `[rows]`"""


class HiddenStateDataset(Dataset[Sample]):
    """The captured samples of a store, in order of units and of their place in them.

    May be used in several processes, forked or spawned: what is mapped is not handed over. A sample stays valid after
    its shard has been closed.
    """

    def __init__(self, folder: Path, *, check: Check = "none", allow_incomplete: bool = False) -> None:
        """Read every unit's record; shards are opened when they are asked for.

        Args:
            folder: the store's.
            check: "lengths": of each shard that is opened, sizes, shapes and offsets against its record; "digests":
                also the content sha256 of each sample that is read, the first time.
            allow_incomplete: take the units that are there of a store that is not finished.

        Raises:
            InputError: there is no store, or it is not finished.
            StoreDamagedError: its manifest is damaged, or units of a finished store are missing.
            StoreMismatchError: it is of another format version.
        """
        self.index = read_index(folder)
        if not (allow_incomplete or self.index.is_complete):
            raise _incomplete(folder, self.index)
        self._check: Check = check
        self._checked: npt.NDArray[np.bool_] = np.zeros(len(self.index.ids), np.bool_)
        self._forget_shards()

    def __len__(self) -> int:
        return len(self.index.ids)

    def __getitem__(self, index: int) -> Sample:
        """A sample by its number.

        Raises:
            IndexError: there are not so many.
            StoreDamagedError: it cannot be read, or is not what was written.
        """
        number = range(len(self))[index]
        unit, at = self.index.place(number)
        shard, sidecar = self._shard(unit)
        sample = shard.sample(self.index.ids[number], at)
        if self._check == "digests" and sidecar and not self._checked[number]:
            _check_digest(shard, sidecar, at)
            self._checked[number] = True
        return {
            "id": sample.id,
            "hidden_states": sample.hidden_states,
            "input_ids": sample.input_ids,
            "loss_mask": sample.loss_mask,
        }

    @property
    def rows(self) -> npt.NDArray[np.int32]:
        """Tokens of each sample: for whoever packs samples by their length."""
        return self.index.rows

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_shard"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget_shards()

    def _forget_shards(self) -> None:
        self._shard = lru_cache(OPEN_SHARDS)(partial(_open, self.index.spec, self._check))


def _open(spec: StoreSpec, check: Check, unit: int) -> tuple[OpenShard, Sidecar | None]:
    shard = OpenShard(spec, unit)
    if check == "none":
        return shard, None
    sidecar = read_sidecar(spec.folder, unit)
    if shard.file.stat().st_size != sidecar.bytes:
        raise StoreDamagedError(f"{shard.file} has not the {sidecar.bytes:,} bytes that its record says: {_REDO}")
    if fault := next(shape_faults(shard.file.name, shard.tensors, sidecar, spec), None):
        raise StoreDamagedError(f"{spec.folder}: {fault}: {_REDO}")
    return shard, sidecar


def _check_digest(shard: OpenShard, sidecar: Sidecar, at: int) -> None:
    record = sidecar.samples[at]
    try:
        found = shard.content_sha256(at)
    except ValueError as error:
        raise StoreDamagedError(f"cannot read sample {record.id!r} of {shard.file}: {error}: {_REDO}") from error
    if found != record.sha256:
        raise StoreDamagedError(
            f"sample {record.id!r} of {shard.file} is not what was written (content sha256): {_REDO}"
        )


def _incomplete(folder: Path, index: StoreIndex) -> InputError | StoreDamagedError:
    if index.manifest["status"] != "complete":
        return InputError(f"{folder} is not finished: run extract again to complete it, or allow an incomplete store")
    return StoreDamagedError(
        f"{folder} has {len(index.units):,} of its {index.manifest['counts']['units']:,} units: run extract again to "
        "make the others anew"
    )
