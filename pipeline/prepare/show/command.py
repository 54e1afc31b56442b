"""The flags of prepare that show its result, and what they do after a run, also after one that had nothing to do."""

from __future__ import annotations

import argparse
import sys

from pipeline.errors import SettingsError


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add them to prepare's own."""
    parser.add_argument("--show", type=_number, default=0, metavar="N", help="print the first N samples")
    parser.add_argument("--show-ids", action="store_true", help="with --show, the token ids too")
    parser.add_argument("--page", action="store_true", help="write samples.html, statistics and samples, beside them")


def check_flags(options: argparse.Namespace) -> None:
    """Refuse what would show nothing, before the run.

    Raises:
        SettingsError: --show-ids without --show.
    """
    if options.show_ids and not options.show:
        raise SettingsError("--show-ids adds to what --show prints: give --show N too")


def show(options: argparse.Namespace) -> None:
    """Print and write what was asked for.

    Args:
        options: prepare's flags; the result is in its output folder.

    Raises:
        SettingsError: the page's folder cannot be written to.
        InputError: the target's tokenizer or the result cannot be read.
        NoSpaceError: the disk is full.
    """
    if not options.show and not options.page:
        return
    # Loads transformers, and the page matplotlib.
    from pipeline.prepare.show.terminal import coloured, lines
    from pipeline.prepare.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(options.model_path, options.trust_remote_code)
    if options.show:
        for line in lines(options.output_dir, tokenizer, options.show, options.show_ids, coloured(sys.stdout)):
            print(line)
    if options.page:
        from pipeline.prepare.show.page import write_page

        print(f"prepare: page written to {write_page(options.output_dir, tokenizer)}")


def _number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: give at least 1")
    return number
