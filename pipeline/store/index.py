"""Where every captured sample of a store lies: compact enough for millions of samples."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.store.manifest import read_manifest
from pipeline.store.sidecar import whole_records
from pipeline.store.spec import StoreSpec


@dataclass(frozen=True)
class StoreIndex:
    """The samples of a store's finished units, in order of units and of their place in them."""

    manifest: dict[str, Any]
    spec: StoreSpec
    ids: list[str]
    rows: npt.NDArray[np.int32]
    """tokens of each sample"""
    units: npt.NDArray[np.int64]
    """the finished units, in order; also those whose samples were all rejected"""
    starts: npt.NDArray[np.int64]
    """`[units + 1]`: number of each unit's first sample, and that of samples"""

    @property
    def is_complete(self) -> bool:
        """Whether the store was finished and none of its units has gone missing since."""
        return self.manifest["status"] == "complete" and self.manifest["counts"]["units"] == len(self.units)

    def place(self, index: int) -> tuple[int, int]:
        """The unit of a sample, and its number in the shard."""
        at = int(np.searchsorted(self.starts, index, side="right")) - 1
        return int(self.units[at]), index - int(self.starts[at])

    def ids_of(self, unit: int) -> list[str]:
        """The samples of one of the finished units, in the order of its shard."""
        at = int(np.searchsorted(self.units, unit))
        return self.ids[self.starts[at] : self.starts[at + 1]]


def read_index(folder: Path) -> StoreIndex:
    """Read the manifest and every unit's record once.

    Raises:
        InputError: there is no store.
        StoreDamagedError: its manifest is damaged.
        StoreMismatchError: it is of another format version.
    """
    manifest = read_manifest(folder)
    spec = StoreSpec.of(folder, manifest)
    ids, rows, units, starts = list[str](), array("i"), array("q"), array("q", [0])
    for sidecar, _ in whole_records(folder, spec.identity):
        ids += [sample.id for sample in sidecar.samples]
        rows.extend(sample.rows for sample in sidecar.samples)
        units.append(sidecar.unit)
        starts.append(len(ids))
    return StoreIndex(
        manifest, spec, ids, np.array(rows, np.int32), np.array(units, np.int64), np.array(starts, np.int64)
    )
