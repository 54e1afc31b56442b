"""`./eyas test` and `./eyas lint`: every part runs, in the environment it is about, whatever the others say.

A part that ran nothing is a failure: tests that are not found must not look like tests that pass. What needs a Docker
engine, its command line, or a stack that does not run on this machine's Python is left out, and counted as skipped,
where that is not there; with EYAS_CI=1 that is a failure.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import invoke

from ops import demo, tokenizers
from ops.beside import Command, run_beside
from ops.counts import Counts, judge, read_report
from ops.dev import ensure_dev
from ops.errors import ChecksumError, InstallError, PythonError
from ops.linters import Linter, linters, run
from ops.local import ensure
from ops.paths import CHECKOUT
from ops.stack.check import find_site_packages
from ops.stack.model import STACKS, load
from ops.stack.stages import EXTRACT, SERVE, TRAIN
from ops.stage import LocalRuntime, stage_environment, wait_for

PYTEST_IN_STACK = Path(__file__).with_name("pytest_in_stack.py")
SLOWEST = ("--durations=15", "--durations-min=1")


def in_ci() -> bool:
    """Whether this run must leave nothing out."""
    return os.environ.get("EYAS_CI", "") not in {"", "0"}


@dataclass(frozen=True)
class Part:
    """A part of the tests: where they are, and how pytest is started for them."""

    paths: tuple[str, ...]
    pytest: Callable[[], Command]
    needs_engine: bool = False

    def __str__(self) -> str:
        return " ".join(self.paths)


def _in_dev() -> Command:
    return Command([str(ensure_dev() / "bin" / "python"), "-m", "pytest"], {})


def _in_stack(name: str) -> Command:
    """Pytest in a stack's environment; every one has the demo target, which the extract stack writes."""
    runtime = LocalRuntime(load(STACKS / name))
    environment = runtime.environment
    variables = stage_environment(offline=True) | {"EYAS_DEMO_TARGET": str(demo.ensure_target(runtime))}
    dev = ensure_dev()
    if name == EXTRACT:
        variables |= _tokenizers(dev)
    tools = str(find_site_packages(dev))
    return Command([str(environment / "bin" / "python"), str(PYTEST_IN_STACK), tools], variables)


def _tokenizers(dev: Path) -> dict[str, str]:
    """Where the tokenizers of large targets are, or why they are not: what needs them says so."""
    try:
        return {"EYAS_TOKENIZERS": str(tokenizers.folder(dev))}
    except (InstallError, ChecksumError) as error:
        return {"EYAS_NO_TOKENIZERS": str(error)}


PARTS = (
    Part(("tests/containers",), _in_dev, needs_engine=True),
    Part(("tests/pipeline", "tests/series"), lambda: _in_stack(EXTRACT)),
    Part(("tests/train",), lambda: _in_stack(TRAIN)),
    Part(("tests/serve",), lambda: _in_stack(SERVE)),
    Part(("tests/ops",), _in_dev),
)


def lint() -> None:
    """Run the linters; ends the process with 1 if one finds something."""
    _finish(_run_linters())


def test(only: Sequence[str], keyword: str) -> None:
    """Run lint and tests; ends the process with 1 if anything failed.

    Args:
        only: paths of tests, in the checkout; lint and the other tests are then left out.
        keyword: pytest's -k; lint is then left out, and a part may have no test that fits.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So it is where a script starts this with &, and so it would stay in everything started from here: in the
        # stages too, which tests interrupt with it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # nohup's; a handler that does nothing keeps its promise here and is not passed on.
        signal.signal(signal.SIGHUP, lambda *_: None)
    total = Counts() if only or keyword else _run_linters()
    chosen = {part: [path for path in only if path.startswith(part.paths)] if only else part.paths for part in PARTS}
    total += _run_parts({part: paths for part, paths in chosen.items() if paths}, keyword)
    known = tuple(path for part in PARTS for path in part.paths)
    for path in only:
        if not path.startswith(known):
            print(f"{path} is in no part of the tests; the parts are {', '.join(known)}")
            total += Counts(failed=1)
    _finish(total if total != Counts() else Counts(failed=1))


def _finish(total: Counts) -> None:
    # The last line, in a form that other programs read.
    print(f"\n{total}", flush=True)
    if total.failed:
        raise invoke.Exit(code=1)


def _run_linters() -> Counts:
    total = Counts()
    for linter in linters(ensure_dev(), lambda name: ensure(load(STACKS / name))):
        total += _run_linter(linter)
    return total


def _run_linter(linter: Linter) -> Counts:
    print(f"== {linter.name}", flush=True)
    if not linter.missing:
        return Counts(passed=1) if run(linter) else Counts(failed=1)
    return _left_out(linter.missing)


def _left_out(why: str) -> Counts:
    print(f"{'FAILED' if in_ci() else 'skipped'}: {why}", flush=True)
    return Counts(failed=1) if in_ci() else Counts(skipped=1)


def _run_parts(chosen: Mapping[Part, Sequence[str]], keyword: str) -> Counts:
    total = Counts()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = {}
        for part, paths in chosen.items():
            try:
                commands[part] = _command(part, paths, keyword, folder)
            except PythonError as error:
                print(f"\n== {part}", flush=True)
                total += _left_out(str(error))
        for part, code in (_live if len(commands) < 2 else _side_by_side)(commands, folder):
            counts = read_report(_report(part, folder))
            if counts.skipped:
                print(f"{part}: {counts.skipped} skipped, for the reasons above", flush=True)
            skippable = part.needs_engine and not in_ci()
            total += judge(counts, code, may_be_empty=bool(keyword), may_be_skipped=skippable)
    return total


def _command(part: Part, paths: Sequence[str], keyword: str, folder: Path) -> Command:
    pytest = part.pytest()
    which = ["-k", keyword] if keyword else []
    return Command([*pytest.line, *paths, f"--junit-xml={_report(part, folder)}", *SLOWEST, *which], pytest.variables)


def _report(part: Part, folder: Path) -> Path:
    return folder / f"{part.paths[0].replace('/', '-')}.xml"


def _live(commands: Mapping[Part, Command], folder: Path) -> Iterator[tuple[Part, int]]:
    for part, command in commands.items():
        print(f"\n== {part}", flush=True)
        yield part, wait_for(command.line, os.environ | command.variables, CHECKOUT)


def _side_by_side(commands: Mapping[Part, Command], folder: Path) -> Iterator[tuple[Part, int]]:
    """Parts at the same time: starting engines, which takes most of it, keeps little more than one core busy."""
    print(f"\nside by side, each printed when it ends: {' | '.join(map(str, commands))}", flush=True)
    named = {str(part): part for part in commands}
    for name, code, output in run_beside({str(p): c for p, c in commands.items()}, folder, CHECKOUT):
        print(f"\n== {name}", flush=True)
        with output.open(encoding="utf-8", errors="replace") as file:
            shutil.copyfileobj(file, sys.stdout)
        sys.stdout.flush()
        yield named[name], code
