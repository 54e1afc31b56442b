"""`python -m pipeline train`: an EAGLE-3 draft out of a store.

In: a store and its target. Out: `vocabulary/`, `checkpoints/` with `untrained` and `best` beside them, `report.json`
and `logs/`. The same command goes on where a run was interrupted, and does nothing when all is done.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pipeline.errors import SettingsError
from pipeline.files import held
from pipeline.train.settings import parse

if TYPE_CHECKING:
    from pipeline.train.job import Job


def main(argv: list[str]) -> int:
    """Run the stage; `--help` tells the flags.

    Returns:
        0 when the draft is trained.

    Raises:
        UserError: see docs/architecture.md for the codes.
    """
    settings = parse(argv)
    from pipeline.train.job import settle
    from pipeline.train.vocabulary import FOLDER

    folder = settings.output_dir
    if "LOCAL_RANK" in os.environ:  # one of several processes, which the one that checked everything has started
        _run(settle(settings, written=folder / FOLDER))
        return 0
    job = settle(settings)
    if settings.dry_run:
        from pipeline.train.plan import lines

        print("\n".join(lines(job)))
        return 0
    try:
        with held(folder):
            _train(argv, job)
    except OSError as error:
        raise SettingsError(f"cannot write {error.filename or folder}: {error.strerror or error}") from error
    return 0


def _train(argv: list[str], job: Job) -> None:
    from pipeline.train import vocabulary
    from pipeline.train.report import finished, text
    from pipeline.train.resume import check_same

    settings = job.settings
    check_same(job)
    if report := finished(job):
        print(f"train: up to date: {settings.output_dir}")
    else:
        vocabulary.write(settings.output_dir / vocabulary.FOLDER, job.vocabulary, job.vocabulary_report)
        if settings.nproc > 1:
            from pipeline.train.launch import launch

            launch(argv, settings.nproc)
        else:
            _run(job)
        report = finished(job)
    print(text(report or {}))


def _run(job: Job) -> None:
    from pipeline.train.report import write
    from pipeline.train.run import run

    measured = run(job)
    if os.environ.get("RANK", "0") == "0":
        write(job, measured)
