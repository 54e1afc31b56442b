"""An engine that is kept going: what it fails on is found, and what it cannot do is left out.

A unit that fails is tried once more; on an engine that was started again if the old one is dead, hung or fails on a
single token as well. If it fails again it is halved until the samples that fail alone are found; these are rejected
with the engine's reason, and the rest is computed as one unit, so that the store does not depend on what was tried
before. Only where no sample fails alone and the unit as a whole does (memory, for example) its parts are computed one
by one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Protocol

from pipeline.errors import EngineError
from pipeline.extract.engines.protocol import Engine
from pipeline.extract.sort_out import sort_out
from pipeline.store.committer import Committed
from pipeline.store.records import OrderedSample, Rejection, UnitOrder, UnitReport
from pipeline.store.sidecar import whole_sidecar
from pipeline.store.spec import StoreSpec
from pipeline.store.unit import report_of

_PROBE = [[0]]
"""What every target can compute: one sample of one token, the first of any vocabulary."""
_MOST_RESTARTS = 12
"""Restarts with no unit written in between: as many as it takes to find one sample of 256 that kills the engine."""
_MOST_REJECTED = 8
"""Samples that fail one after the other with none captured in between: then it is the engine, not the samples."""


class Notes(Protocol):
    """Who is told how it goes, see `RunProgress`."""

    def event(self, name: str, **fields: object) -> None:
        """Something went wrong, or is right again."""

    def unit_done(self, report: UnitReport) -> None:
        """A unit is on the disk."""


class Supervisor:
    """Has units captured by an engine that it starts, watches and starts again. Use it in a `with`."""

    def __init__(self, start: Callable[[], Engine], spec: StoreSpec, deadline: float, notes: Notes) -> None:
        """Start the engine.

        Args:
            start: makes one; may be called several times, each time after the last one was closed.
            spec: of the store that it writes to.
            deadline: seconds that one unit may take.
            notes: told of every unit, and of all that goes wrong.

        Raises:
            EngineError: it does not start.
        """
        self._start, self._spec, self._deadline, self._notes = start, spec, deadline, notes
        self._unwritten: dict[int, UnitOrder] = {}
        self._restarts = self._rejected = 0
        self._engine = self._started()

    def capture(self, order: UnitOrder) -> None:
        """Have a unit computed and handed to the writer.

        Raises:
            EngineError: the engine fails whatever it is given.
            NoSpaceError, SettingsError: a unit could not be written.
        """
        everything = [len(order.samples)]
        reason = self._attempt(order, everything) and self._attempt(order, everything)
        if reason is not None:
            self._capture_what_can_be(order, reason)

    def finish(self) -> None:
        """Return when all units are on the disk; raises as `capture`."""
        while self._unwritten:
            try:
                with self._watched():
                    committed = self._engine.finish()
            except EngineError as error:
                self._recover(error, unit=min(self._unwritten))
            else:
                self._take(committed)

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.close()

    def _attempt(self, order: UnitOrder, passes: Sequence[int]) -> str | None:
        """Have a unit captured; why it failed, or None."""
        try:
            with self._watched():
                committed = self._engine.capture(order, passes)
        except EngineError as error:
            self._recover(error, unit=order.unit)
            return str(error)
        self._unwritten[order.unit] = order
        self._rejected = 0 if order.samples else self._rejected
        self._take(committed)
        return None

    def _capture_what_can_be(self, order: UnitOrder, reason: str) -> None:
        parts, culprits = sort_out(order.samples, self._failure_of, reason)
        rejected = tuple(
            Rejection(sample.id, f"the target cannot be run on it: {why}", sample.line) for sample, why in culprits
        )
        names = {sample.id for sample, _ in culprits}
        rest = replace(order, samples=tuple(s for s in order.samples if s.id not in names), rejected=rejected)
        self._rejected += len(culprits)
        if not rest.samples and self._rejected > _MOST_REJECTED:
            raise EngineError(
                f"{self._rejected} samples failed one after the other, so it is not the samples: {reason}"
            )
        self._notes.event("sorted out", unit=order.unit, rejected=sorted(names), parts=parts)
        last = self._attempt(rest, [len(rest.samples)] if culprits and rest.samples else parts)
        if last is not None and culprits:
            last = self._attempt(rest, parts)
        if last is not None:
            raise EngineError(f"unit {order.unit} fails even in parts that do not: {last}")

    def _failure_of(self, samples: Sequence[OrderedSample]) -> str | None:
        try:
            with self._watched():
                self._engine.check([sample.input_ids for sample in samples])
        except EngineError as error:
            self._recover(error, unit=None)
            return str(error)
        return None

    def _recover(self, error: EngineError, *, unit: int | None) -> None:
        """Have an engine that works again, and what the old one had not written captured by it."""
        self._notes.event("engine failed", unit=unit, error=str(error))
        if not self._works():
            self._restart(error)

    def _works(self) -> bool:
        if not self._engine.alive:
            return False
        try:
            with self._watched():
                self._engine.check(_PROBE)
        except EngineError as error:
            self._notes.event("engine broken", error=str(error))
            return False
        return True

    def _restart(self, error: EngineError) -> None:
        self._restarts += 1
        if self._restarts > _MOST_RESTARTS:
            raise EngineError(f"started again {_MOST_RESTARTS} times without one unit done: {error}") from error
        self._engine.close()
        self._engine = self._started()
        self._notes.event("engine started again", after=str(error))
        lost, self._unwritten = self._unwritten, {}
        for order in lost.values():
            if (sidecar := whole_sidecar(self._spec.folder, order.unit, self._spec.identity)) is not None:
                self._written(report_of(sidecar))
            else:
                self.capture(order)

    def _started(self) -> Engine:
        engine = self._start()
        try:
            engine.write_to(self._spec)
        except BaseException:
            engine.close()
            raise
        return engine

    def _take(self, committed: Committed) -> None:
        for report in committed.reports:
            self._written(report)
        if committed.failure is not None:
            raise committed.failure

    def _written(self, report: UnitReport) -> None:
        self._unwritten.pop(report.unit, None)
        self._restarts = 0
        self._notes.unit_done(report)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Ends the engine when it does not answer in time."""
        hung = threading.Event()
        engine = self._engine

        def end() -> None:
            hung.set()
            engine.kill()

        timer = threading.Timer(self._deadline, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except EngineError as error:
            if hung.is_set():
                raise EngineError(
                    f"the engine gave no answer within {self._deadline:,.0f} s (--unit-deadline)"
                ) from error
            raise
        finally:
            timer.cancel()
