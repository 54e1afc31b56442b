"""One container from creation to removal: its output here, its exit code ours, signals handed on, nothing left."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import Any

from ops.container.errors import LostError
from ops.container.output import Follower
from ops.container.owner import GRACE
from ops.container.refusal import explain
from ops.container.spec import ContainerSpec, to_config

INTERRUPTED = 130
BROKEN_PIPE = 128 + signal.SIGPIPE
# What Docker reports for SIGKILL, from `docker kill` or the kernel's out-of-memory killer.
KILLED = 128 + signal.SIGKILL
# Seconds for the rest of the output after the container has ended.
LAST_OUTPUT = 10

Event = tuple[str, Any]


def run_container(client: Any, spec: ContainerSpec, name: str, driver: str) -> int:
    """Run a container to its end and remove it.

    Args:
        client: docker-py's client.
        spec: the container.
        name: its name.
        driver: the NVIDIA driver's version, for the sentence when the engine refuses GPUs.

    Returns:
        The stage's exit code; 130 after Ctrl-C or SIGTERM, whatever the stage made of it.

    Raises:
        UserError: the engine refused (52, 54, 56).
        LostError: the engine went away, or the container was ended from outside.
    """
    events: SimpleQueue[Event] = SimpleQueue()
    with _signals(events, tty=spec.tty):
        try:
            with _engine_errors(driver):
                _create(client.api, spec, name)
                follower = Follower(client.api, name, tty=spec.tty, broken=lambda: events.put(("broken pipe", None)))
                client.api.start(name)
            Thread(target=_wait, args=(client.api, name, events), daemon=True).start()
            return _watch(client.api, name, events, follower)
        finally:
            _remove(client.api, name)


def _create(api: Any, spec: ContainerSpec, name: str) -> None:
    api.create_container_from_config(to_config(spec, api._version), name)


@contextmanager
def _engine_errors(driver: str) -> Iterator[None]:
    from docker.errors import APIError
    from requests.exceptions import RequestException

    try:
        yield
    except APIError as error:
        raise explain(str(error.explanation or error), driver=driver) from error
    except RequestException as error:
        raise LostError("the Docker engine went away while a container was made: start it and run again") from error


@contextmanager
def _signals(events: SimpleQueue[Event], *, tty: bool) -> Iterator[None]:
    """Turn signals into events. SimpleQueue.put may be called in a handler, which interrupts anything."""
    handled = {signal.SIGINT: "stop", signal.SIGTERM: "stop"}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it on purpose
        handled[signal.SIGHUP] = "stop"
    if tty:
        handled[signal.SIGWINCH] = "resize"
    before = {number: signal.signal(number, lambda n, _: events.put((handled[n], n))) for number in handled}  # type: ignore[index]
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(api: Any, name: str, events: SimpleQueue[Event]) -> None:
    try:
        # The engine's answer comes when the container ends; docker-py would give up after its own time.
        events.put(("exit", int(api.wait(name, timeout=None)["StatusCode"])))
    except Exception as error:  # noqa: BLE001 - of any kind from three libraries: what matters is that the wait ended
        events.put(("lost", error))


def _watch(api: Any, name: str, events: SimpleQueue[Event], follower: Follower) -> int:
    stops = 0
    forced: int | None = None
    while True:
        what, value = events.get()
        if what == "resize":
            with contextlib.suppress(Exception):  # a container that ends at this moment has no terminal to resize
                columns, rows = shutil.get_terminal_size()
                api.resize(name, height=rows, width=columns)
        elif what in {"stop", "broken pipe"}:
            stops += 1
            forced = forced or (INTERRUPTED if what == "stop" else BROKEN_PIPE)
            _stop(api, name, again=stops > 1, told=what == "stop")
        elif what == "exit":
            follower.finish(LAST_OUTPUT)
            return forced or _judge(api, name, value)
        else:
            if forced:
                return forced
            raise LostError(
                f"the Docker engine went away while container {name} ran; when it is back, the same command removes "
                "what is left of it and goes on"
            )


def _stop(api: Any, name: str, *, again: bool, told: bool) -> None:
    """Send the image's stop signal, and kill after the grace period; the second time kill at once."""
    if told:
        hint = "killing the container" if again else f"stopping the container, for up to {GRACE} s (again: kill it now)"
        print(f"eyas: {hint}", file=sys.stderr, flush=True)

    def send() -> None:
        with contextlib.suppress(Exception):  # it may have ended, or the engine: the one who waits will tell
            if again:
                api.kill(name, signal.SIGKILL)
            else:
                api.stop(name, timeout=GRACE)

    # In the background: the next signal has to be heard meanwhile.
    Thread(target=send, daemon=True).start()


def _judge(api: Any, name: str, code: int) -> int:
    """The stage's own exit code, unless the container was ended by someone else."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    state: dict[str, Any] = {}
    with contextlib.suppress(DockerException, RequestException, OSError):
        state = api.inspect_container(name)["State"]
    if state.get("OOMKilled"):
        raise LostError(
            "the container ran out of memory and was killed: give it more, or lower --batch-size or --token-budget; "
            "the same command goes on where it was"
        )
    if code == KILLED:
        raise LostError(
            f"container {name} was killed from outside (docker kill, or the kernel for lack of memory); the same "
            "command goes on where it was"
        )
    if code == INTERRUPTED:
        raise LostError(
            f"container {name} was stopped from outside (./eyas stop, docker stop, or the engine shutting down); the "
            "same command goes on where it was"
        )
    return code


def _remove(api: Any, name: str) -> None:
    # Of any kind: it was never made, someone else removed it, or the engine is away. None of that may hide how the
    # stage ended; what is left of a container is found by the next start.
    with contextlib.suppress(Exception):
        api.remove_container(name, force=True, v=True)
