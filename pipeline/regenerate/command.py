"""`python -m pipeline regenerate`: the target answers prompts itself.

In: JSONL files of prompts or conversations, and a target. Out: `conversations.jsonl`, which `prepare` reads,
`conversations.header.json`, and `rejected.jsonl` with every row that gave no conversation and why. A bad row never
stops the run. A run that was ended goes on where it was, and its result is that of one that was not.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from pipeline.prepare.tokenizer import load_tokenizer
from pipeline.regenerate.folder import CONVERSATIONS, ResultFolder
from pipeline.regenerate.generator import Generator
from pipeline.regenerate.identity import identity_of
from pipeline.regenerate.job import Job, settle
from pipeline.regenerate.prompts import Prompts
from pipeline.regenerate.run import answer_units
from pipeline.regenerate.settings import parse
from pipeline.store.durable import told
from pipeline.store.lock import StoreLock


def main(argv: list[str]) -> int:
    """Run the stage; `--help` tells the flags.

    Returns:
        0 when every row is answered or rejected.

    Raises:
        UserError: see docs/architecture.md for the codes.
    """
    job = settle(parse(argv))
    identity = identity_of(job)
    output = job.settings.output_dir
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock = StoreLock(output)
        try:
            _run(job, ResultFolder(output, identity))
        finally:
            lock.release()
    except OSError as error:
        raise told(error, Path(error.filename or output)) from error
    return 0


def _run(job: Job, folder: ResultFolder) -> None:
    result = folder.path / CONVERSATIONS
    if folder.header is not None:
        print(f"regenerate: up to date: {folder.header.get('conversations')} conversations in {result}")
        return
    prompts = Prompts(load_tokenizer(job.target.folder, job.settings.trust_remote_code), job.max_model_len - 1)
    folder.begin()
    units = len(list(job.units()))
    rate = None
    try:
        if not all(folder.has(unit) for unit in range(units)):
            rate = answer_units(job, folder, prompts, partial(_start, job, prompts))
    except KeyboardInterrupt:
        done = sum(folder.has(unit) for unit in range(units))
        print(f"{done:,} of {units:,} units are in {folder.path}; the same command goes on there", file=sys.stderr)
        raise
    about = {"model": job.target.folder.resolve().name, "chat_template_sha256": prompts.template_sha256}
    account = folder.finish(units, job.rows, about)
    lines = [*account.lines(job.rows), f"written to {result}"]
    lines[0] += f", {rate:,.0f} tok/s" if rate else ""
    print("\n".join(f"regenerate: {line}" for line in lines))


def _start(job: Job, prompts: Prompts) -> Generator:
    from pipeline.regenerate.engine import VllmGenerator  # imports torch, which a finished result needs not

    return VllmGenerator(job, prompts.end_of_turn())
