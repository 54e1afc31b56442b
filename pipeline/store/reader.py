"""Reading a store: samples by id, or shard by shard, mapped from the files and not copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from pipeline.errors import InputError, StoreDamagedError
from pipeline.store.layout import shard_file
from pipeline.store.manifest import read_manifest
from pipeline.store.sidecar import Sidecar, finished_units, read_sidecar


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
    start: int
    """first row in the shard"""
    rows: int


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
        self.units = sorted(finished_units(folder))
        self._places = dict(place for unit in self.units for place in _places(read_sidecar(folder, unit)))

    def ids(self) -> list[str]:
        """The captured samples' ids, in order of units and of their place in them."""
        return list(self._places)

    def ids_of(self, unit: int) -> list[str]:
        """The captured samples of one unit, in the order of the shard."""
        return [sample["id"] for sample in read_sidecar(self.folder, unit)["samples"]]

    def rows(self, sample: str) -> int:
        """How many tokens a sample has."""
        return self._place(sample).rows

    def sample(self, sample: str) -> StoredSample:
        """A sample by its id.

        Raises:
            InputError: there is no such sample.
            StoreDamagedError: its shard cannot be read.
        """
        (loaded,) = self._load(self._place(sample).unit, [sample])
        return loaded

    def shards(self) -> Iterator[list[StoredSample]]:
        """The samples of one unit after the other; a unit whose samples were all rejected is left out."""
        for unit in self.units:
            if samples := self.ids_of(unit):
                yield self._load(unit, samples)

    def _place(self, sample: str) -> _Place:
        if sample not in self._places:
            raise InputError(f"{self.folder} holds no sample {sample!r}: it is not of the input, or was rejected")
        return self._places[sample]

    def _load(self, unit: int, samples: Iterable[str]) -> list[StoredSample]:
        file = shard_file(self.folder, unit)
        loaded = []
        try:
            with safe_open(file, framework="pt") as shard:
                states, ids, mask = (shard.get_slice(name) for name in ("hidden_states", "input_ids", "loss_mask"))
                for sample in samples:
                    _, start, rows = self._places[sample]
                    place = slice(start, start + rows)
                    loaded.append(StoredSample(sample, unit, states[place], ids[place], mask[place]))
        except (SafetensorError, OSError) as error:
            raise StoreDamagedError(f"cannot read {file}: {error}") from error
        return loaded


def _places(sidecar: Sidecar) -> Iterator[tuple[str, _Place]]:
    start = 0
    for sample in sidecar["samples"]:
        yield sample["id"], _Place(sidecar["unit"], start, sample["rows"])
        start += sample["rows"]
