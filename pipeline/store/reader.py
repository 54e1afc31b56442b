"""Reading a store: samples by id, or shard by shard, mapped from the files and not copied where that is possible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from pipeline.errors import InputError, StoreDamagedError
from pipeline.store.content import content_sha256
from pipeline.store.index import read_index
from pipeline.store.layout import shard_file
from pipeline.store.shard import MappedShard
from pipeline.store.spec import StoreSpec
from pipeline.store.storage import storage_of


@dataclass(frozen=True)
class StoredSample:
    """A sample as it lies in a shard; one row per token."""

    id: str
    unit: int
    hidden_states: torch.Tensor
    """`[rows, layers, hidden]`"""
    input_ids: torch.Tensor
    """int64 `[rows]`"""
    loss_mask: torch.Tensor
    """uint8 `[rows]`"""


class OpenShard:
    """One mapped shard."""

    def __init__(self, spec: StoreSpec, unit: int) -> None:
        """Map it.

        Raises:
            StoreDamagedError: it cannot be read.
        """
        self.file = shard_file(spec.folder, unit)
        self._unit = unit
        self._storage = storage_of(spec.storage)
        self._mapped = MappedShard(self.file)
        self.tensors = self._mapped.tensors
        try:
            self.offsets: list[int] = self.tensors["offsets"].tolist()
            self._ids, self._mask = self.tensors["input_ids"], self.tensors["loss_mask"]
            form = (len(spec.layer_ids), spec.hidden_size)
            self._states = self._storage.open(self.tensors, self.offsets, *form)
        except (KeyError, ValueError) as error:
            raise StoreDamagedError(f"cannot read {self.file}: {error!r}") from error

    def sample(self, sample: str, at: int) -> StoredSample:
        """The shard's sample number `at`, whose id is `sample`; each tensor has a storage of its own.

        Raises:
            StoreDamagedError: it cannot be decoded.
        """
        try:
            states = self._states.sample(at)
        except ValueError as error:
            raise StoreDamagedError(f"cannot read sample {sample!r} of {self.file}: {error}") from error
        rows = slice(self.offsets[at], self.offsets[at + 1])
        return StoredSample(sample, self._unit, _apart(states), _apart(self._ids[rows]), _apart(self._mask[rows]))

    def will_need(self, at: int) -> None:
        """Have the kernel begin to read the shard's sample number `at`, so that `sample` need not wait for the disk."""
        for piece in self._states.mapped(at):
            self._mapped.will_need(piece)

    def content_sha256(self, at: int) -> str:
        """Computed again for the shard's sample number `at`, see `pipeline.store.content`.

        Raises:
            ValueError: it cannot be decoded.
        """
        rows = slice(self.offsets[at], self.offsets[at + 1])
        content = (*self._states.content(at), self._ids[rows], self._mask[rows])
        return content_sha256(self._storage.content_dtype, content[0].shape, content)


class StoreReader:
    """The finished units of a store, complete or not."""

    def __init__(self, folder: Path) -> None:
        """Read the manifest and all sidecars; what cannot be read of a unit makes it unfinished.

        Raises:
            InputError: there is no store.
            StoreDamagedError: its manifest is damaged.
            StoreMismatchError: it is of another format version.
        """
        self.folder = folder
        self._index = read_index(folder)
        self.manifest, self.spec = self._index.manifest, self._index.spec
        self.units: list[int] = self._index.units.tolist()

    def ids(self) -> list[str]:
        """The captured samples' ids, in order of units and of their place in them."""
        return self._index.ids

    def ids_of(self, unit: int) -> list[str]:
        """The captured samples of one unit, in the order of the shard."""
        return self._index.ids_of(unit)

    def rows(self, sample: str) -> int:
        """How many tokens a sample has."""
        return int(self._index.rows[self._number(sample)])

    def sample(self, sample: str) -> StoredSample:
        """A sample by its id.

        Raises:
            InputError: there is no such sample.
            StoreDamagedError: its shard cannot be read.
        """
        unit, at = self._index.place(self._number(sample))
        return OpenShard(self.spec, unit).sample(sample, at)

    def shards(self) -> Iterator[list[StoredSample]]:
        """The samples of one unit after the other; a unit whose samples were all rejected is left out."""
        for unit in self.units:
            if ids := self.ids_of(unit):
                shard = OpenShard(self.spec, unit)
                yield [shard.sample(sample, at) for at, sample in enumerate(ids)]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {sample: number for number, sample in enumerate(self._index.ids)}

    def _number(self, sample: str) -> int:
        if sample not in self._numbers:
            raise InputError(f"{self.folder} holds no sample {sample!r}: it is not of the input, or was rejected")
        return self._numbers[sample]


def _apart(part: torch.Tensor) -> torch.Tensor:
    """The same memory under a storage of its own.

    To save a tensor, or to hand it to another process, is to copy its storage: that of a slice is the whole shard's.
    """
    return torch.from_numpy(part.view(torch.uint8).numpy()).view(part.dtype)
