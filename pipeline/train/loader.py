"""Batches, made in a thread while the step before is computed.

A thread and no processes: what it does is copying and converting mapped memory, in which torch lets go of the
interpreter, and so nothing passes through shared memory, which containers have little of.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from speculators.train.data import CollateFn
from torch.utils.data import DataLoader

from pipeline.train.backend import StoreDataset
from pipeline.train.batches import StepBatches
from pipeline.train.rows import DraftRows, Rows

Batch = dict[str, Any]
AHEAD = 2
"""Batches that wait: one is too few where samples differ much in length. 470 MB each for Kimi-K2.5 and 8,192 tokens."""
_END = object()


class Collate:
    """Packs rows of samples into one sequence as speculators does, as long as they are or of one fixed length."""

    def __init__(self, dataset: StoreDataset, hidden_size: int, layers: int, ttt_steps: int, rows: int | None) -> None:
        """Set up packing.

        Args:
            dataset: whose samples are packed.
            hidden_size: the target's.
            layers: auxiliary layers.
            ttt_steps: steps of training-time test.
            rows: of every batch, the rest padding, so that a compiled model sees one shape; None: as many as needed.
        """
        self._make_rows, self._least = DraftRows(ttt_steps), ttt_steps
        self._form = (hidden_size, layers, dataset.hidden_states_dtype)
        self._rows = rows

    def __call__(self, samples: Sequence[Rows]) -> Batch:
        """Batch of `[1, rows, ...]` tensors and `document_ids`, -1 where there is padding."""
        made = [self._make_rows(sample) for sample in samples]
        # A process may have no sample of a step, and the draft shifts its input by up to ttt_steps rows.
        needed = max(sum(len(rows["input_ids"]) for rows in made), self._least)
        pack = CollateFn(self._rows or needed, self._form[0], self._form[1], dtype=self._form[2])
        batch: Batch = pack(made)
        if torch.cuda.is_available():
            batch = {name: value.pin_memory() if torch.is_tensor(value) else value for name, value in batch.items()}
        return batch


class Loader:
    """One process's batches, in the order of its sampler."""

    def __init__(self, dataset: StoreDataset, batches: StepBatches, collate: Collate) -> None:
        """Nothing is read before the first iteration."""
        self.batch_sampler = batches
        # A generator of its own: each iteration draws a seed, from the thread, and a run that goes on has one more.
        self._loader = DataLoader(dataset, batch_sampler=batches, collate_fn=collate, generator=torch.Generator())

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Batch]:
        made: queue.Queue[Any] = queue.Queue(AHEAD)
        stop = threading.Event()
        thread = threading.Thread(target=self._make, args=(made, stop), name="batches", daemon=True)
        thread.start()
        try:
            while (batch := made.get()) is not _END:
                if isinstance(batch, BaseException):
                    raise batch
                yield batch
        finally:
            stop.set()
            while thread.is_alive():
                _drain(made)
                thread.join(0.01)

    def _make(self, made: queue.Queue[Any], stop: threading.Event) -> None:
        try:
            for batch in self._loader:
                made.put(batch)
                if stop.is_set():
                    return
            made.put(_END)
        except BaseException as error:  # noqa: BLE001 - it is raised where the batch is asked for
            made.put(error)


def _drain(made: queue.Queue[Any]) -> None:
    while not made.empty():
        made.get_nowait()
