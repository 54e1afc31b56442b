"""Work over processes: order, bounds, and ends of every kind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pipeline.errors import WorkerError
from pipeline.prepare.pool import AHEAD, spread
from tests.pipeline.conftest import CHECKOUT


@pytest.fixture
def before() -> set[psutil.Process]:
    """Processes that other tests of the same run have left, such as a tracker of shared memory."""
    return _children()


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def slowly(number: int) -> int:
    time.sleep(0.01 * (number % 3))
    return number * number


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_the_order_of_the_pieces(workers: int) -> None:
    assert list(spread(slowly, range(40), workers)) == [number * number for number in range(40)]


def test_pieces_larger_than_a_pipe_holds_do_not_block_each_other() -> None:
    results = spread(lambda piece: piece[::-1], (bytes([number]) * (1 << 20) for number in range(30)), 2)
    assert [result[0] for result in results] == list(range(30))


def test_pieces_are_taken_as_they_are_needed(before: set[psutil.Process]) -> None:
    taken = []

    def pieces() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    results = spread(slowly, pieces(), 2)
    assert next(results) == 0
    assert len(taken) <= 2 * AHEAD + 1
    results.close()
    assert _children() <= before


def test_process_that_dies_is_told_and_leaves_none_behind(before: set[psutil.Process]) -> None:
    def die(number: int) -> int:
        if number == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(WorkerError, match="ended by itself") as error:
        list(spread(die, range(100), 2))
    assert error.value.exit_code == 64
    assert _children() <= before


def test_mistake_in_the_work_is_told_with_its_traceback(before: set[psutil.Process]) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        list(spread(lambda number: 1 // number, range(3), 2))
    assert _children() <= before


PROGRAM = """
import sys, time
from pathlib import Path
from pipeline.prepare.pool import signals_interrupt, spread
with signals_interrupt():
    for number in spread(lambda number: time.sleep(0.01), iter(int, 1), 2):
        Path(sys.argv[1]).touch()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_the_one_that_started_them_however_it_ends(number: signal.Signals, tmp_path: Path) -> None:
    flag = tmp_path / "runs"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(flag)], cwd=CHECKOUT, stderr=subprocess.DEVNULL)
    while not flag.exists():
        assert process.poll() is None
        time.sleep(0.01)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) == 2
    process.send_signal(number)
    assert process.wait(10) != 0
    assert not psutil.wait_procs(children, timeout=5)[1]
