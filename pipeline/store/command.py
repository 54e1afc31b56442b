"""`python -m pipeline store merge|split|prune|stats|export`: what is made of stores, and what is in one."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pipeline.errors import SettingsError
from pipeline.store.derive.merge import merge
from pipeline.store.derive.prune import Wanted, prune
from pipeline.store.derive.split import split_ids, split_parts
from pipeline.store.layout import store_in
from pipeline.store.report import show_built, show_stats, write_stats
from pipeline.store.stats import store_stats

if TYPE_CHECKING:
    from pipeline.store.derive.build import Built, Progress

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

FORMS = ("speculators-0.3.0", "speculators-0.9.0")
STORE_HELP = "a complete store, or a run's folder with store/ in it"


def main(argv: list[str]) -> int:
    """Run one of the commands; `--help` tells them and their flags.

    Raises:
        UserError: see docs/architecture.md for the codes.
    """
    flags = _parse(argv)
    run: Callable[[argparse.Namespace, Console], None] = flags.run
    run(flags, Console())
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m pipeline store", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add_command in (_add_merge, _add_split, _add_prune, _add_stats, _add_export):
        add_command(commands)
    return parser.parse_args(argv)


def _add_merge(commands: Subparsers) -> None:
    add = _command(commands, "merge", _merge, "one store out of several of the same target and settings")
    add("out", type=Path, metavar="OUT", help="folder of the new store")
    add("parts", type=Path, nargs="+", metavar="STORE", help=STORE_HELP)


def _add_split(commands: Subparsers) -> None:
    add = _command(commands, "split", _split, "a store in parts of whole units, or by samples into two")
    add("store", type=Path, metavar="STORE", help=STORE_HELP)
    add("--parts", type=int, metavar="N", help="parts of whole units with about as many rows each")
    add("--ids", type=Path, metavar="FILE", help="one id a line: a store with these samples and one without them")
    add("--output-dir", type=Path, required=True, metavar="DIR", help="folder for the new stores")


def _add_prune(commands: Subparsers) -> None:
    add = _command(commands, "prune", _prune, "a store without some samples; those that any flag names go")
    add("store", type=Path, metavar="STORE", help=STORE_HELP)
    add("--ids", type=Path, metavar="FILE", help="samples to leave out, one id a line")
    add("--shorter-than", type=int, metavar="N", help="leave out samples of fewer tokens")
    add("--longer-than", type=int, metavar="N", help="leave out samples of more tokens")
    add("--untrained", action="store_true", help="leave out samples of which no token is trained on")
    add("--output-dir", type=Path, required=True, metavar="DIR", help="folder of the new store")


def _add_stats(commands: Subparsers) -> None:
    add = _command(commands, "stats", _stats, "counts, lengths, norms and reasons, from the records alone")
    add("store", type=Path, metavar="STORE", help=STORE_HELP)
    add("--json", type=Path, metavar="FILE", help="write all figures there")


def _add_export(commands: Subparsers) -> None:
    add = _command(commands, "export", _export, "a store's samples as files that a version of speculators reads")
    add("store", type=Path, metavar="STORE", help=STORE_HELP)
    add("--to", choices=FORMS, required=True, help="whose form")
    add("--output-dir", type=Path, required=True, metavar="DIR", help="folder of the files; must not exist")


def _command(
    commands: Subparsers, name: str, run: Callable[[argparse.Namespace, Console], None], what: str
) -> Callable[..., Any]:
    parser = commands.add_parser(name, help=what, description=what, allow_abbrev=False)
    parser.set_defaults(run=run)
    return parser.add_argument


def _merge(flags: argparse.Namespace, console: Console) -> None:
    with _progress(console) as progress:
        built = merge(flags.out, flags.parts, progress)
    show_built(console, [built])


def _split(flags: argparse.Namespace, console: Console) -> None:
    if (flags.parts is None) == (flags.ids is None):
        raise SettingsError("split needs --parts or --ids, one of them")
    built: list[Built]
    with _progress(console) as progress:
        if flags.ids is None:
            built = split_parts(flags.store, flags.parts, flags.output_dir, progress)
        else:
            built = split_ids(flags.store, flags.ids, flags.output_dir, progress)
    show_built(console, built)


def _prune(flags: argparse.Namespace, console: Console) -> None:
    wanted = Wanted(
        ids_file=flags.ids,
        shorter_than=flags.shorter_than,
        longer_than=flags.longer_than,
        untrained=flags.untrained,
    )
    with _progress(console) as progress:
        built = prune(flags.store, wanted, flags.output_dir, progress)
    show_built(console, [built])


def _stats(flags: argparse.Namespace, console: Console) -> None:
    stats = store_stats(flags.store)
    show_stats(console, stats)
    if flags.json:
        write_stats(flags.json, stats)


def _export(flags: argparse.Namespace, console: Console) -> None:
    from pipeline.store.export.write import export  # imports torch

    with console.status(f"writing {flags.output_dir}"):
        count = export(store_in(flags.store), flags.output_dir, flags.to)
    console.print(f"{count:,} samples for {flags.to} in {flags.output_dir}", soft_wrap=True)


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    with console.status("reading the records") as status:
        yield lambda done, of: status.update(f"unit {done:,} of {of:,}")
