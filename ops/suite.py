"""`./eyas test` and `./eyas lint`: every part runs, in the environment it is about, whatever the others say.

A part that ran nothing is a failure: tests that are not found must not look like tests that pass.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import invoke

from ops import demo, linters
from ops.counts import Counts, judge, read_report
from ops.dev import ensure_dev
from ops.local import ensure
from ops.paths import CHECKOUT
from ops.stack.check import find_site_packages
from ops.stack.model import STACKS, load
from ops.stage import stage_environment, wait_for

HOST_TESTS = ("tests/ops",)
STACK_TESTS = ("tests/pipeline", "tests/series")
PYTEST_IN_STACK = Path(__file__).with_name("pytest_in_stack.py")


def lint() -> None:
    """Run the linters; ends the process with 1 if one finds something."""
    _finish(_run_linters())


def test(only: Sequence[str], keyword: str) -> None:
    """Run lint and tests; ends the process with 1 if anything failed.

    Args:
        only: paths of tests, in the checkout; lint and the other tests are then left out.
        keyword: pytest's -k; lint is then left out, and a part may have no test that fits.
    """
    total = Counts() if only or keyword else _run_linters()
    for part, run in ((HOST_TESTS, _in_host), (STACK_TESTS, _in_stack)):
        paths = [path for path in only if path.startswith(part)] if only else list(part)
        if paths:
            total += _run_part(run, paths, keyword)
    for path in only:
        if not path.startswith(HOST_TESTS + STACK_TESTS):
            print(f"{path} is in no part of the tests; the parts are {', '.join(HOST_TESTS + STACK_TESTS)}")
            total += Counts(failed=1)
    _finish(total if total != Counts() else Counts(failed=1))


def _finish(total: Counts) -> None:
    # The last line, in a form that other programs read.
    print(f"\n{total}", flush=True)
    if total.failed:
        raise invoke.Exit(code=1)


def _run_linters() -> Counts:
    total = Counts()
    for name, command in linters.commands(ensure_dev(), ensure(load(STACKS / "extract"))).items():
        print(f"== {name}", flush=True)
        done = subprocess.run(command, cwd=CHECKOUT, check=False)
        total += Counts(failed=1) if done.returncode else Counts(passed=1)
    return total


def _run_part(run: Callable[[list[str]], int], paths: list[str], keyword: str) -> Counts:
    print(f"\n== {' '.join(paths)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        code = run([*paths, f"--junit-xml={report}", *(["-k", keyword] if keyword else [])])
        return judge(read_report(report), code, may_be_empty=bool(keyword))


def _in_host(arguments: list[str]) -> int:
    python = str(ensure_dev() / "bin" / "python")
    return wait_for([python, "-m", "pytest", *arguments], os.environ, CHECKOUT)


def _in_stack(arguments: list[str]) -> int:
    environment = ensure(load(STACKS / "extract"))
    variables = stage_environment(offline=True) | {"EYAS_DEMO_TARGET": str(demo.ensure_target(environment))}
    tools = str(find_site_packages(ensure_dev()))
    command = [str(environment / "bin" / "python"), str(PYTEST_IN_STACK), tools, *arguments]
    return wait_for(command, variables, CHECKOUT)
