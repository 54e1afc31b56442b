"""Work spread over processes, its results in the order of the work.

Each process is handed every n-th piece and gives its results back in that order, so nothing has to be sorted, and no
more than a few pieces a process are on their way at any time. A process ends with the one that started it, however that
ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import queue
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from pipeline.errors import WorkerError

Piece = TypeVar("Piece")
Result = TypeVar("Result")
AHEAD = 3
"""pieces that a process has: one at hand, the others so that it need not wait"""
_PR_SET_PDEATHSIG = 1


def spread(work: Callable[[Piece], Result], pieces: Iterable[Piece], workers: int) -> Generator[Result, None, None]:
    """Do the work on every piece.

    Args:
        work: a pure function; what it holds is shared with the processes as it is now, they are forked.
        pieces: taken as they are needed.
        workers: how many processes; with 1 it is done here.

    Returns:
        The results, in the order of the pieces.

    Raises:
        WorkerError: a process ended by itself.
        RuntimeError: the work raised something; its traceback is in the message.
    """
    if workers == 1:
        yield from map(work, pieces)
        return
    with _processes(work, workers) as connections:
        waiting: deque[Connection] = deque()
        try:
            for number, piece in enumerate(pieces):
                if len(waiting) == AHEAD * workers:
                    yield _received(waiting.popleft())
                connections[number % workers].send(piece)
                waiting.append(connections[number % workers])
            while waiting:
                yield _received(waiting.popleft())
        except (EOFError, ConnectionError) as error:
            raise WorkerError(
                "a worker process ended by itself: out of memory? Use fewer --workers, and see the kernel's log"
            ) from error


def _received(connection: Connection) -> Any:
    done, result = connection.recv()
    if not done:
        raise RuntimeError(f"in a worker process:\n{result}")
    return result


@contextmanager
def _processes(work: Callable[[Any], Any], count: int) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("fork")
    connections, processes = [], []
    # What is here so far is shared with the processes; looking through it for garbage would copy it.
    gc.freeze()
    try:
        for _ in range(count):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, work, os.getpid()), daemon=True)
            process.start()
            # The process has the only other end, so that its death is seen here.
            there.close()
            connections.append(here)
            processes.append(process)
        yield connections
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
        for connection in connections:
            connection.close()
        gc.unfreeze()


def _serve(connection: Connection, work: Callable[[Any], Any], parent: int) -> None:
    # Ctrl-C reaches the whole group; the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    # Lists of tokens by the million hold no cycles: looking for them after every 700 takes a twentieth of the time.
    gc.set_threshold(100_000)
    # A process has one core.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Pieces are taken in at once: a parent that waits for its piece to be taken cannot take a result.
    pieces: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_take_in, args=(connection, pieces), daemon=True).start()
    while True:
        piece = pieces.get()
        try:
            answer = (True, work(piece))
        except BaseException:  # noqa: BLE001 - whatever it is, the parent tells it
            answer = (False, traceback.format_exc())
        connection.send(answer)


def _take_in(connection: Connection, pieces: queue.SimpleQueue[Any]) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            pieces.put(connection.recv())
    os._exit(0)


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does; and so does SIGINT where it was ignored, as in a shell's background job."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before: list[Any] = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
