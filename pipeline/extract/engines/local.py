"""What is the same for all engines that compute in this process: they write the store from here."""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from pipeline.store.committer import Committed, Committer
from pipeline.store.content import row_norms
from pipeline.store.records import UnitOrder
from pipeline.store.spec import StoreSpec


class LocalEngine(ABC):
    """An engine whose `extract` computes here."""

    alive = True

    def __init__(self) -> None:
        self._committer: Committer | None = None
        self._units_in_memory = threading.Semaphore(2)

    @abstractmethod
    def extract(self, samples: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """See `Engine.extract`."""

    def write_to(self, spec: StoreSpec) -> None:
        """See `Engine.write_to`."""
        self._committer = Committer(spec)

    def capture(self, order: UnitOrder, passes: Sequence[int]) -> Committed:
        """See `Engine.capture`."""
        committer = self._writer()
        self._units_in_memory.acquire()
        try:
            samples = iter([sample.input_ids for sample in order.samples])
            states = [state for count in passes for state in self.extract(list(itertools.islice(samples, count)))]
        except BaseException:
            self._units_in_memory.release()
            raise
        whole = torch.cat(states) if states else torch.empty(0, 1, 1)
        committer.submit(order, whole, row_norms(whole), self._units_in_memory.release)
        return committer.committed()

    def check(self, samples: Sequence[Sequence[int]]) -> None:
        """See `Engine.check`."""
        self.extract(samples)

    def finish(self) -> Committed:
        """See `Engine.finish`."""
        return self._writer().committed(wait=True)

    def kill(self) -> None:  # noqa: B027 - there is nothing to do
        """There is no process to end but this one."""

    def close(self) -> None:
        """See `Engine.close`; writes what was captured to its end."""
        if self._committer is not None:
            self._committer.close()

    def _writer(self) -> Committer:
        assert self._committer is not None, "capture() before write_to()"  # noqa: S101 - a bug, not a user's error
        return self._committer
