"""The run: units that are not done go through the target, one after the other."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from pipeline.errors import EngineError
from pipeline.extract.quiet import last_line, output_to
from pipeline.prepare.sample import Rejected
from pipeline.prepare.source import Row
from pipeline.regenerate.dialogue import Dialogue
from pipeline.regenerate.folder import ResultFolder
from pipeline.regenerate.generator import Generator
from pipeline.regenerate.job import Job
from pipeline.regenerate.progress import AnswerProgress
from pipeline.regenerate.prompts import Prompts
from pipeline.regenerate.rows import DialogueReader, rows_of
from pipeline.regenerate.unit import UnitWriter

ENGINE_LOG = "logs/engine.log"
EVENTS = "logs/events.jsonl"

ReadUnit = tuple[int, Sequence[tuple[Row, Dialogue | Rejected]]]


def units_of(job: Job) -> Iterator[ReadUnit]:
    """The input in units: their numbers and rows."""
    reader = DialogueReader()
    rows = ((row, reader.read(row)) for row in rows_of(job.settings.input, job.settings.limit))
    for number, size in job.units():
        yield number, list(itertools.islice(rows, size))


def answer_units(job: Job, folder: ResultFolder, prompts: Prompts, start: Callable[[], Generator]) -> float:
    """Answer the units that are not done.

    Args:
        job: the run.
        folder: begun.
        prompts: of the target.
        start: loads the target.

    Returns:
        Tokens a second, the target's loading not counted.

    Raises:
        EngineError, NoSpaceError, InputError: units that were finished before stay.
        KeyboardInterrupt: after Ctrl-C or SIGTERM; units that were finished before stay.
    """
    log = folder.path / ENGINE_LOG
    done = sum(size for number, size in job.units() if folder.has(number))
    with (
        _signals_interrupt(),
        output_to(log) as terminal,
        AnswerProgress(terminal, folder.path / EVENTS, rows=job.rows, done_rows=done) as progress,
    ):
        try:
            with closing(start()) as generator:
                progress.engine_ready()
                writer = UnitWriter(job, prompts, generator, progress.answered)
                for number, unit in units_of(job):
                    if not folder.has(number):
                        folder.add(number, writer.answer(unit))
                        progress.unit_done(number, len(unit))
        except EngineError as error:
            told = last_line(log)
            raise EngineError(f"{error}{f' [{told}]' if told else ''}; its log is {log}") from error
        return progress.rate


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does; and so does SIGINT where it was ignored, as in a shell's background job."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before: list[Any] = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
