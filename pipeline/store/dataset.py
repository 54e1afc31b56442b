"""A store as a trainer reads it: random access by number, several processes, shuffled shard by shard.

dataset = HiddenStateDataset(Path("runs/demo/store"))
for sample in DataLoader(dataset, batch_size=None, sampler=ShardShuffle(dataset, seed=0), num_workers=2):
    sample["hidden_states"], sample["input_ids"], sample["loss_mask"]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
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


READ_AHEAD = 32 << 20
"""bytes: what a disk of 1 to 2 GB/s reads in the 20 ms or so that a trainer's thread may be kept from it"""

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

    def in_order(self, numbers: Iterable[int], ahead: int = READ_AHEAD) -> Iterator[Sample]:
        """These samples one after the other, the disk at work on the next ones while one is used.

        Args:
            numbers: of samples, as for `dataset[number]`; a sampler, for example. Taken as they are needed.
            ahead: bytes of states that are read before they are asked for; at least the next sample is.

        Raises:
            IndexError: there are not so many.
            StoreDamagedError: see `dataset[number]`; when that sample's turn comes.
        """
        spec = self.index.spec
        waiting, under_way, row = deque[int](), 0, 2 * len(spec.layer_ids) * spec.hidden_size
        for number in map(range(len(self)).__getitem__, numbers):
            self._will_need(number)
            waiting.append(number)
            under_way += int(self.rows[number]) * row
            while len(waiting) > 1 and under_way > ahead:
                first = waiting.popleft()
                under_way -= int(self.rows[first]) * row
                yield self[first]
        yield from map(self.__getitem__, waiting)

    def _will_need(self, number: int) -> None:
        unit, at = self.index.place(number)
        with suppress(StoreDamagedError):  # its turn to be refused comes
            self._shard(unit)[0].will_need(at)

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
