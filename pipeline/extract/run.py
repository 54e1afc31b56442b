"""The run: units that are not done go through the engine, and what comes back is committed while the next one runs."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, TextIO

from pipeline.errors import EngineError
from pipeline.extract.engines.protocol import Engine, start_engine
from pipeline.extract.job import Job
from pipeline.extract.plan import Unit, read_unit
from pipeline.extract.progress import RunProgress
from pipeline.extract.quiet import last_line, output_to
from pipeline.store.content import non_finite_layers, row_norms
from pipeline.store.records import CapturedSample, Rejection
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
    with _signals_interrupt(), output_to(log) as terminal, _progress(job, store, units, terminal) as progress:
        try:
            with closing(start_engine(job.settings.engine, job.engine_options())) as engine:
                progress.engine_ready()
                extract_units(job, store, units, engine, progress)
        except EngineError as error:
            told = last_line(log)
            raise EngineError(f"{error}{f' [{told}]' if told else ''}; its log is {log}") from error
        return progress.rate


def extract_units(job: Job, store: Store, units: Iterable[Unit], engine: Engine, progress: RunProgress) -> None:
    """One unit is computed while the one before it is written: at most two units' states are in memory."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="store") as writer:
        pending: Future[None] | None = None
        for unit in units:
            captured, rejected = _capture(job, unit, engine)
            if pending is not None:
                pending.result()
            pending = writer.submit(_commit, store, unit.index, captured, rejected, progress)
        if pending is not None:
            pending.result()


def _capture(job: Job, unit: Unit, engine: Engine) -> tuple[list[CapturedSample], list[Rejection]]:
    samples = read_unit(job.settings.prepared_data, unit)
    states = engine.extract([sample.input_ids for sample in samples])
    captured, rejected = list[CapturedSample](), list[Rejection]()
    for ref, sample, state in zip(unit.samples, samples, states, strict=True):
        if broken := non_finite_layers(state, row_norms(state)):
            reason = f"non-finite states at layer {', '.join(str(job.layer_ids[at]) for at in broken)}"
            rejected.append(Rejection(sample.id, reason, ref.line))
        else:
            captured.append(CapturedSample(sample.id, sample.input_ids, sample.loss_mask, state))
    return captured, rejected


def _commit(
    store: Store, unit: int, captured: list[CapturedSample], rejected: list[Rejection], progress: RunProgress
) -> None:
    written = store.write_unit(unit, captured, rejected).bytes
    tokens = sum(len(sample.input_ids) for sample in captured)
    progress.unit_done(unit, samples=len(captured), tokens=tokens, written=written)


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
