"""`python -m pipeline prepare`: conversations to tokenized samples with loss masks.

In: JSONL files of conversations and a target's folder, of which only tokenizer and chat template are read. Out:
`tokenized.jsonl`, `tokenized.header.json`, and `rejected.jsonl` with every row that gave no sample and why. A bad row
never stops the run. A run that would give what is already there does nothing.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.errors import NoSamplesError, NoSpaceError, SettingsError
from pipeline.files import held
from pipeline.prepare.fingerprint import fingerprint
from pipeline.prepare.header import DATA, changes, read_header
from pipeline.prepare.output import publish, publish_rejected, write_outcomes
from pipeline.prepare.show.command import add_flags, check_flags, show
from pipeline.prepare.source import Row, check_sources, read_rows


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
    """
    options = _parser().parse_args(argv)
    if options.max_seq_len < 1:
        raise SettingsError(f"--max-seq-len {options.max_seq_len}: give at least 1")
    check_flags(options)
    check_sources(options.input)
    made_from = fingerprint(options.input, options.model_path, options.max_seq_len, options.trust_remote_code)
    try:
        with held(options.output_dir):
            _run(options, made_from)
    except OSError as error:
        where = error.filename or options.output_dir
        if error.errno == errno.ENOSPC:
            raise NoSpaceError(f"the disk is full at {where}: free some space and run it again") from error
        raise SettingsError(f"cannot write {where}: {error.strerror or error}") from error
    show(options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m pipeline prepare", description="Conversations to tokenized samples.")
    parser.add_argument("--input", type=Path, action="append", required=True, help="conversations, JSONL; repeatable")
    parser.add_argument("--model-path", type=Path, required=True, help="the target's folder")
    parser.add_argument("--output-dir", type=Path, required=True, help="where the samples go")
    parser.add_argument("--max-seq-len", type=int, default=2048, help="cut samples to this many tokens (default 2048)")
    parser.add_argument("--trust-remote-code", action="store_true", help="run Python code from the target's folder")
    add_flags(parser)
    return parser


def _run(options: argparse.Namespace, made_from: dict[str, Any]) -> None:
    folder: Path = options.output_dir
    if earlier := read_header(folder):
        differences = changes(folder, earlier, made_from)
        if not differences:
            print(f"prepare: up to date: {earlier.get('samples')} samples in {folder / DATA}")
            return
        print("prepare: redone because of " + "; ".join(differences))
    from pipeline.prepare.encode import Encoder, Settings
    from pipeline.prepare.sample import Sampler
    from pipeline.prepare.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(options.model_path, options.trust_remote_code)
    encoder = Encoder(tokenizer, Settings(max_seq_len=options.max_seq_len))
    rows = _Counted(options.input)
    account = write_outcomes(folder, Sampler(encoder).process(iter(rows)))
    account.rows_read = rows.count
    counts = account.close()
    told = list(account.lines(options.max_seq_len))
    if not account.samples:
        reasons = "; ".join(told[1:]) or "the input is empty"
        raise NoSamplesError(f"no usable row: {reasons} (all of them: {publish_rejected(folder)})")
    made_from["tokenizer"]["vocab_size"] = len(tokenizer)
    counts["chat_template_sha256"] = hashlib.sha256(encoder.template_source.encode()).hexdigest()
    publish(folder, made_from, counts)
    print("\n".join(f"prepare: {line}" for line in [*told, f"written to {folder / DATA}"]))


class _Counted:
    """The rows of all files, counted where they are read and not where they end up."""

    def __init__(self, paths: list[Path]) -> None:
        self.count = 0
        self._paths = paths

    def __iter__(self) -> Iterator[Row]:
        for path in self._paths:
            for row in read_rows(path):
                self.count += 1
                yield row
