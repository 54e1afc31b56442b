"""Which samples make up which optimizer step, and which process computes which of them.

The samples of a step are a function of the samples' lengths, the seed and the epoch, whatever the number of processes:
so training with two gives the losses of training with one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np
from speculators.train.distributed_batch_sampler import MultipackDistributedBatchSamplerV2
from torch.utils.data import Sampler

from pipeline.errors import SettingsError

Batch = list[int]


class StepBatches(Sampler[Batch]):
    """One process's share of every optimizer step of an epoch; every sample is in exactly one step."""

    def __init__(  # noqa: PLR0913 - keyword-only
        self,
        lengths: Sequence[int],
        *,
        batch_tokens: int,
        seed: int,
        shuffle: bool = True,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        """Pack samples into steps.

        Args:
            lengths: tokens of each sample.
            batch_tokens: most tokens in a step, over all processes.
            seed: of the order.
            shuffle: another order in every epoch.
            rank: of this process.
            processes: how many share a step.

        Raises:
            SettingsError: a sample does not fit into a step.
        """
        if (longest := max(lengths)) > batch_tokens:
            raise SettingsError(
                f"--batch-tokens {batch_tokens} is less than the longest sample has, {longest}: give at least that, or "
                "prune longer ones with ./eyas store.prune --longer-than"
            )
        self._lengths = np.asarray(lengths)
        # As if there were one process: with several, speculators' sampler drops what is left over at an epoch's end.
        self._packer = MultipackDistributedBatchSamplerV2(batch_tokens, self._lengths, 1, 0, seed=seed)
        self._shuffle, self._rank, self._processes = shuffle, rank, processes
        self._epoch = self._skip = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order."""
        self._epoch = epoch if self._shuffle else 0

    def skip(self, steps: int) -> None:
        """Begin the next iteration after so many steps: they were done before training was interrupted."""
        self._skip = steps

    def steps(self, epoch: int) -> list[Batch]:
        """The samples of each step of an epoch, over all processes."""
        packed = self._packer._generate_batches(epoch if self._shuffle else 0)
        return [step.tolist() for step in packed]

    def most_rows(self, epochs: int) -> int:
        """The most rows that a process has in a step of so many epochs."""
        return max(
            sum(int(self._lengths[sample]) - 1 for sample in share)
            for epoch in range(epochs)
            for step in self.steps(epoch)
            for share in self._shares(step)
        )

    def __len__(self) -> int:
        return len(self.steps(self._epoch))

    def __iter__(self) -> Iterator[Batch]:
        first, self._skip = self._skip, 0
        for step in self.steps(self._epoch)[first:]:
            yield self._shares(step)[self._rank]

    def _shares(self, step: Batch) -> list[Batch]:
        """The step's samples by process: the longest first, each to the process with the fewest tokens so far."""
        shares: list[Batch] = [[] for _ in range(self._processes)]
        filled = [(0, rank) for rank in range(self._processes)]
        for sample in sorted(step, key=lambda sample: (-self._lengths[sample], sample)):
            tokens, rank = heapq.heappop(filled)
            shares[rank].append(sample)
            heapq.heappush(filled, (tokens + int(self._lengths[sample]), rank))
        return shares
