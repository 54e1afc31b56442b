"""The run: units that are not done go through the engine, which leaves them in the store."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TextIO

from pipeline.errors import EngineError
from pipeline.extract.engines.protocol import start_engine
from pipeline.extract.job import Job
from pipeline.extract.plan import Unit, read_unit
from pipeline.extract.progress import RunProgress
from pipeline.extract.quiet import last_line, output_to
from pipeline.extract.supervise import Supervisor
from pipeline.store.records import OrderedSample, UnitOrder
from pipeline.store.writer import Store

ENGINE_LOG = "logs/engine.log"
EVENTS = "logs/events.jsonl"


def run_units(job: Job, store: Store, todo: set[int]) -> float:
    """Extract units into a store.

    Args:
        job: the run.
        store: open for it.
        todo: the units' numbers.

    Returns:
        Tokens a second, the target's loading not counted.

    Raises:
        EngineError, NoSpaceError, InputError: what was committed before stays.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, the engine's processes gone, what was committed before stays.
    """
    log = store.folder / ENGINE_LOG
    units = [unit for unit in job.plan.units if unit.index in todo]
    start = partial(start_engine, job.settings.engine, job.engine_options())
    with _signals_interrupt(), output_to(log) as terminal, _progress(job, store, units, terminal) as progress:
        try:
            with Supervisor(start, store.spec, job.settings.unit_deadline, progress) as engine:
                progress.engine_ready()
                extract_units(job, units, engine)
        except EngineError as error:
            told = last_line(log)
            raise EngineError(f"{error}{f' [{told}]' if told else ''}; its log is {log}") from error
        return progress.rate


def extract_units(job: Job, units: Iterable[Unit], engine: Supervisor) -> None:
    """One unit is computed while the one before it is written; on return all are on the disk."""
    for unit in units:
        samples = read_unit(job.settings.prepared_data, unit)
        engine.capture(
            UnitOrder(
                unit.index,
                tuple(
                    OrderedSample(sample.id, ref.line, sample.input_ids, sample.loss_mask)
                    for ref, sample in zip(unit.samples, samples, strict=True)
                ),
            )
        )
    engine.finish()


def _progress(job: Job, store: Store, units: list[Unit], terminal: TextIO) -> RunProgress:
    left = sum(unit.tokens for unit in units)
    events = store.folder / EVENTS
    progress = RunProgress(terminal, events, tokens=job.tokens, done_tokens=job.tokens - left)
    progress.event("start", units=len(units), tokens=left, of=job.tokens)
    return progress


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does; and so does SIGINT where it was ignored, as in a shell's background job.

    The engine's workers end on either, whatever this process makes of it.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before: list[Any] = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
