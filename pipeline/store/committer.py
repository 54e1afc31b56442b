"""Units to the disk in the background, beside the forward pass that makes the next one.

Two threads in a row: one hashes and writes a unit, whose memory is then free; the next one syncs and names it. So the
disk works while the next unit is hashed, and at most two units are on their way: one being written, one being synced.
Hashes, writes and syncs run without the interpreter's lock.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import TracebackType

import torch

from pipeline.store.layout import WRITER_LOCK
from pipeline.store.lock import WORKER_PATIENCE, StoreLock
from pipeline.store.records import UnitOrder, UnitReport
from pipeline.store.spec import StoreSpec
from pipeline.store.unit import PendingUnit, captured_samples, write_unit

HASH_THREADS = 2
"""As many as it takes to hash (about 1 GB/s a thread) as fast as a good disk writes."""


@dataclass(frozen=True)
class Committed:
    """What became of units."""

    reports: list[UnitReport]
    """those on the disk, in the order in which they were submitted"""
    failure: BaseException | None
    """what stopped the first one that is not: `NoSpaceError`, `SettingsError`, `EngineError`, or a bug's; none is
    written after it"""


class Committer:
    """Writes a store's units; the only one to do so. Close it, or use it in a `with`."""

    def __init__(self, spec: StoreSpec, cpus: Iterable[int] | None = None) -> None:
        """Become the store's writer.

        Args:
            spec: of the store, whose lock the run holds.
            cpus: CPUs that the threads may run on, where this process is bound to fewer.

        Raises:
            StoreBusyError: another process still writes to it.
        """
        self._spec = spec
        self._lock = StoreLock(spec.folder, WRITER_LOCK, WORKER_PATIENCE)
        bind = partial(os.sched_setaffinity, 0, set(cpus)) if cpus else None
        self._hashers = ThreadPoolExecutor(HASH_THREADS, "hash", initializer=bind)
        self._writer = ThreadPoolExecutor(1, "write", initializer=bind)
        self._syncer = ThreadPoolExecutor(1, "sync", initializer=bind)
        self._unsynced = threading.Semaphore(2)
        self._units: list[Future[UnitReport]] = []
        self._failure: BaseException | None = None  # no unit is written once there is one
        self._end: BaseException | None = None  # nor committed after the first one that failed, as the syncer sees them

    def submit(
        self,
        order: UnitOrder,
        states: torch.Tensor,
        norms: torch.Tensor,
        free: Callable[[], None],
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Hand over a unit; returns at once.

        Args:
            order: the unit.
            states: `[rows, layers, hidden]`, sample after sample.
            norms: their rows' L2 norms, float32 `[rows, layers]`.
            free: called when the states are no longer needed, from another thread; also if the unit failed.
            ready: called before they are read, from another thread; returns when they are all there.
        """
        written = self._writer.submit(self._write, order, states, norms, free, ready)
        self._units.append(self._syncer.submit(self._sync, written))

    def committed(self, *, wait: bool = False) -> Committed:
        """What was committed since the last call.

        Args:
            wait: for all that was submitted.
        """
        reports = list[UnitReport]()
        while self._units and (wait or self._units[0].done()):
            unit = self._units.pop(0)
            if (failure := unit.exception()) is not None:
                self._units.clear()
                return Committed(reports, failure)
            reports.append(unit.result())
        return Committed(reports, None)

    def close(self) -> None:
        """Finish what was submitted and let another writer in; a second call does nothing."""
        for pool in (self._writer, self._syncer, self._hashers):
            pool.shutdown()
        self._lock.release()

    def __enter__(self) -> Committer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(
        self,
        order: UnitOrder,
        states: torch.Tensor,
        norms: torch.Tensor,
        free: Callable[[], None],
        ready: Callable[[], None],
    ) -> PendingUnit:
        self._unsynced.acquire()
        try:
            if self._failure is not None:
                raise self._failure  # the store ends before the unit that failed first
            ready()
            captured, rejected = captured_samples(order, states, norms, self._spec.layer_ids)
            return write_unit(self._spec, order.unit, captured, rejected, self._hashers)
        except BaseException as failure:
            self._failure = failure
            raise
        finally:
            free()

    def _sync(self, written: Future[PendingUnit]) -> UnitReport:
        try:
            pending = written.result()
            if self._end is not None:
                pending.discard()
                raise self._end
            return pending.commit()
        except BaseException as failure:
            self._failure = self._end = failure
            raise
        finally:
            self._unsynced.release()
