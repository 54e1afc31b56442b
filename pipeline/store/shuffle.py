"""The order in which a trainer reads a store."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch.utils.data import Sampler

from pipeline.store.dataset import HiddenStateDataset


class ShardShuffle(Sampler[int]):
    """The samples' numbers, shards in random order and each shard's samples in random order, every one exactly once.

    So a shard's pages are read together, and a disk that cannot hold the store in memory is read once an epoch.
    """

    def __init__(self, dataset: HiddenStateDataset, seed: int) -> None:
        """The order is a function of the store, the seed and the epoch, which is 0 at first."""
        self._starts = dataset.index.starts
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the iterations that begin from now on."""
        self._epoch = epoch

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng([self._seed, self._epoch])
        for unit in rng.permutation(len(self._starts) - 1):
            start, end = self._starts[unit : unit + 2]
            yield from (start + rng.permutation(end - start)).tolist()
