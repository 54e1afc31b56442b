"""Reading a store: samples by id, or shard by shard, mapped from the files and not copied."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from pipeline.errors import InputError, StoreDamagedError
from pipeline.store.layout import shard_file
from pipeline.store.manifest import read_manifest
from pipeline.store.shard import MappedShard
from pipeline.store.sidecar import Sidecar, finished_units, read_sidecar
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


class _Place(NamedTuple):
    unit: int
    at: int
    """number in the shard"""
    rows: int


class OpenShard:
    """One mapped shard."""

    def __init__(self, spec: StoreSpec, unit: int) -> None:
        """Map it.

        Raises:
            StoreDamagedError: it cannot be read.
        """
        self._file = shard_file(spec.folder, unit)
        tensors = MappedShard(self._file).tensors
        try:
            self.offsets: list[int] = tensors["offsets"].tolist()
            self._ids, self._mask = tensors["input_ids"], tensors["loss_mask"]
            form = (len(spec.layer_ids), spec.hidden_size)
            self._states = storage_of(spec.storage).open(tensors, self.offsets, *form)
        except (KeyError, ValueError) as error:
            raise StoreDamagedError(f"cannot read {self._file}: {error!r}") from error
        self._unit = unit

    def sample(self, sample: str, at: int) -> StoredSample:
        """The shard's sample number `at`, whose id is `sample`.

        Raises:
            StoreDamagedError: it cannot be decoded.
        """
        rows = slice(self.offsets[at], self.offsets[at + 1])
        try:
            states = self._states.sample(at)
        except ValueError as error:
            raise StoreDamagedError(f"cannot read sample {sample!r} of {self._file}: {error}") from error
        return StoredSample(sample, self._unit, states, self._ids[rows], self._mask[rows])


class StoreReader:
    """The finished units of a store, complete or not."""

    def __init__(self, folder: Path) -> None:
        """Read the manifest and all sidecars.

        Raises:
            InputError: there is no store.
            StoreDamagedError: its manifest or a sidecar is damaged.
        """
        self.folder = folder
        self.manifest = read_manifest(folder)
        self.spec = StoreSpec.of(folder, self.manifest)
        self.units = sorted(finished_units(folder, self.spec.identity))
        self._places = dict(place for unit in self.units for place in _places(read_sidecar(folder, unit)))

    def ids(self) -> list[str]:
        """The captured samples' ids, in order of units and of their place in them."""
        return list(self._places)

    def ids_of(self, unit: int) -> list[str]:
        """The captured samples of one unit, in the order of the shard."""
        return [sample.id for sample in read_sidecar(self.folder, unit).samples]

    def rows(self, sample: str) -> int:
        """How many tokens a sample has."""
        return self._place(sample).rows

    def sample(self, sample: str) -> StoredSample:
        """A sample by its id.

        Raises:
            InputError: there is no such sample.
            StoreDamagedError: its shard cannot be read.
        """
        place = self._place(sample)
        return OpenShard(self.spec, place.unit).sample(sample, place.at)

    def shards(self) -> Iterator[list[StoredSample]]:
        """The samples of one unit after the other; a unit whose samples were all rejected is left out."""
        for unit, places in itertools.groupby(self._places.items(), key=lambda place: place[1].unit):
            shard = OpenShard(self.spec, unit)
            yield [shard.sample(sample, place.at) for sample, place in places]

    def _place(self, sample: str) -> _Place:
        if sample not in self._places:
            raise InputError(f"{self.folder} holds no sample {sample!r}: it is not of the input, or was rejected")
        return self._places[sample]


def _places(sidecar: Sidecar) -> Iterator[tuple[str, _Place]]:
    for at, sample in enumerate(sidecar.samples):
        yield sample.id, _Place(sidecar.unit, at, sample.rows)
