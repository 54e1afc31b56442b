"""`python -m pipeline prepare`: conversations to tokenized samples with loss masks.

In: files of conversations, texts or tokens (`sources`, `formats`), and a target's folder, of which only tokenizer and
chat template are read. Out: `tokenized.jsonl`, `tokenized.header.json`, and `rejected.jsonl` with every row that gave
no sample and why. A bad row never stops the run. A run that would give what is already there does nothing.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, fields
from datetime import date
from pathlib import Path
from typing import Any, get_args

from pipeline.errors import NoSamplesError, NoSpaceError, SettingsError
from pipeline.files import held
from pipeline.prepare.fingerprint import fingerprint
from pipeline.prepare.header import DATA, changes, read_header
from pipeline.prepare.output import publish, publish_rejected, write_outcomes
from pipeline.prepare.pool import signals_interrupt, spread
from pipeline.prepare.reading import Reading
from pipeline.prepare.remembered import Digests
from pipeline.prepare.seen import Seen
from pipeline.prepare.settings import Settings, SpecialTokens, TrainOn, Truncate
from pipeline.prepare.show.command import add_flags, check_flags, show
from pipeline.prepare.sources.files import Input, inputs_of

SMALL = 1 << 20
"""bytes of input for which no processes are worth their start"""


def main(argv: list[str]) -> int:
    """Prepare tokenized samples, unless they are there already.

    Args:
        argv: the stage's flags.

    Returns:
        0.

    Raises:
        SettingsError: settings that cannot be honoured, or an output folder that cannot be written.
        InputError: an input file or the target's tokenizer is missing or unreadable.
        NoSamplesError: every row was rejected.
        NoSpaceError: the disk is full.
        WorkerError: a process that shares the work ended by itself.
        KeyboardInterrupt: after Ctrl-C or SIGTERM; no process is left, an earlier result is.
    """
    options = _parser().parse_args(argv)
    check_flags(options)
    settings = Settings(**{field.name: getattr(options, field.name) for field in fields(Settings)})
    if options.workers < 1:
        raise SettingsError(f"--workers {options.workers}: give at least 1")
    inputs = inputs_of(options.input, options.format)
    digests = Digests(options.output_dir)
    made_from = fingerprint(inputs, options.model_path, _about(settings, options), digests)
    try:
        with held(options.output_dir), signals_interrupt():
            _run(options, settings, inputs, made_from, digests)
            digests.save()
    except OSError as error:
        where = error.filename or options.output_dir
        if error.errno == errno.ENOSPC:
            raise NoSpaceError(f"the disk is full at {where}: free some space and run it again") from error
        raise SettingsError(f"cannot write {where}: {error.strerror or error}") from error
    show(options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m pipeline prepare", description="Conversations to tokenized samples.")
    parser.add_argument("--input", action="append", required=True, metavar="PLACE", help=_INPUT)
    parser.add_argument("--format", help="of all rows, where an input has none of its own; else seen row by row")
    parser.add_argument("--seed", type=int, default=0, help="of the rows that a weight takes (default 0)")
    parser.add_argument("--model-path", type=Path, required=True, help="the target's folder")
    parser.add_argument("--output-dir", type=Path, required=True, help="where the samples go")
    for name, kind, choices, help_text in _CHOICES:
        default = getattr(_DEFAULTS, name)
        shown = f"{help_text} (default: {default})"
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, choices=choices, default=default, help=shown)
    parser.add_argument("--workers", type=int, default=_cores(), help="processes (default: one a core)")
    parser.add_argument("--trust-remote-code", action="store_true", help="run Python code from the target's folder")
    add_flags(parser)
    return parser


_INPUT = (
    "a file (JSONL, JSON, gzip or zstd of them, Parquet, Arrow), a folder of them, or hf:owner/name:split; with "
    ",weight=0.5 that share of its rows is taken, with ,cap=1000 no more than so many, with ,format=F all are read as "
    "F; repeatable"
)


_DEFAULTS = Settings()
_CHOICES: tuple[tuple[str, Callable[[str], Any], tuple[str, ...] | None, str], ...] = (
    ("max_seq_len", int, None, "longest sample, in tokens"),
    ("truncate", str, get_args(Truncate), "of longer ones: what is cut off, or reject, or one for each turn"),
    ("train_on", str, get_args(TrainOn), "which answers of a conversation are trained"),
    ("min_trained_tokens", int, None, "leave out samples with fewer"),
    ("special_tokens", str, get_args(SpecialTokens), "text that looks like special tokens: what becomes of it"),
    ("day", date.fromisoformat, None, "the date that chat templates which write today's are told"),
)


def _about(settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    """The settings that samples depend on, whoever computes them."""
    chosen = asdict(settings) | {"day": settings.day.isoformat()}
    return chosen | {"trust_remote_code": options.trust_remote_code, "seed": options.seed}


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _run(
    options: argparse.Namespace, settings: Settings, inputs: list[Input], made_from: dict[str, Any], digests: Digests
) -> None:
    folder: Path = options.output_dir
    if earlier := read_header(folder):
        differences = changes(folder, earlier, made_from, digests)
        if not differences:
            print(f"prepare: up to date: {earlier.get('samples')} samples in {folder / DATA}")
            return
        print("prepare: redone because of " + "; ".join(differences))
    from pipeline.prepare.sample import Sampler, settled
    from pipeline.prepare.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(options.model_path, options.trust_remote_code)
    sampler = Sampler(tokenizer, settings)
    reading = Reading(inputs, options.seed)
    with closing(Seen(folder)) as seen:
        results = spread(sampler, reading.chunks(), 1 if _is_small(inputs) else options.workers)
        with closing(results):
            account = write_outcomes(folder, settled((one for result in results for one in result), seen))
    counts = account.close(reading)
    told = list(account.lines(options.max_seq_len))
    if not account.samples:
        reasons = "; ".join(account.rejections()) or "the input is empty"
        raise NoSamplesError(f"no usable row: {reasons} (all of them: {publish_rejected(folder)})")
    made_from["tokenizer"]["vocab_size"] = len(tokenizer)
    counts["chat_template_sha256"] = hashlib.sha256(sampler.template_source.encode()).hexdigest()
    publish(folder, made_from, counts, digests)
    print("\n".join(f"prepare: {line}" for line in [*told, f"written to {folder / DATA}"]))


def _is_small(inputs: Sequence[Input]) -> bool:
    parts = [part for one in inputs for part in one.parts]
    return not any(part.hub for part in parts) and sum(part.path.stat().st_size for part in parts) < SMALL
