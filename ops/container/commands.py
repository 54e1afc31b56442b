"""`./eyas shell`, `./eyas logs` and `./eyas stop`: around the containers of this checkout."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace
from threading import Thread
from typing import Any

from ops.container import mounts
from ops.container.assemble import assemble, folders, say, this_host
from ops.container.choice import choose
from ops.container.commandline import docker_run
from ops.container.engine import any_cli, connect
from ops.container.owner import CHECKOUT_LABEL, GRACE, LABEL, end, is_gone
from ops.container.runtime import DockerRuntime
from ops.container.session import LAST_OUTPUT
from ops.paths import CHECKOUT
from ops.stack.model import Stack
from ops.stage import StageCall


def shell(stack: Stack, call: StageCall, gpus: str | None) -> None:
    """Become a shell in the image, with the mounts and limits that a stage's container has.

    Args:
        stack: the stack whose image it is.
        call: the stage; its mounts are taken and its flags are not.
        gpus: the value of --gpus.

    Raises:
        UserError: see `ops.container.runtime`.
    """
    runtime = choose(stack, "docker", gpus)
    if not isinstance(runtime, DockerRuntime):
        raise TypeError(runtime.name)
    image, host = runtime.image, this_host("shell")
    mounts.make_folders(folders(call, host))
    spec = assemble(call, image, runtime.gpus, host)
    mounts.check(spec.mounts)
    # A terminal's keys, sizes and modes are the docker command's own craft.
    tty = spec.tty and os.isatty(0)
    line = docker_run(replace(spec, command=(), entrypoint="bash", interactive=True, tty=tty), any_cli())
    os.execv(line[0], line)  # noqa: S606 - no shell is wanted


def logs(*, follow: bool) -> None:
    """Print what the newest container of this checkout has printed; the stage's own log lies in its store.

    Args:
        follow: go on until the container ends.
    """
    client = connect()
    found = _containers(client)
    if not found:
        say("no container of this checkout; what an engine printed is in the store's logs/engine.log")
        return
    newest = found[0]
    say(f"container {newest.name}, {newest.status}")
    printer = Thread(target=_print_log, args=(newest, follow), daemon=True)
    printer.start()
    if follow:
        # A log that is followed may not end with its container.
        newest.wait(timeout=None)
    printer.join(LAST_OUTPUT if follow else None)


def _print_log(container: Any, follow: bool) -> None:
    from docker.errors import APIError

    with contextlib.suppress(APIError):  # removed by its task at this moment
        for chunk in container.logs(stream=True, follow=follow):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()


def stop() -> None:
    """Stop what runs in containers of this checkout, and say which; each gets the time to end well."""
    running = _containers(connect(), running=True)
    if not running:
        say("no container of this checkout runs")
    for container in running:
        say(f"stopping {container.name}, for up to {GRACE} s")
        if is_gone(container.labels.get(LABEL, ""), ended=False):
            end(container)
        else:
            container.stop(timeout=GRACE)  # its task removes it


def _containers(client: Any, *, running: bool = False) -> list[Any]:
    """Containers of this checkout, the newest first and running ones before others."""
    filters = {"label": f"{CHECKOUT_LABEL}={CHECKOUT}"}
    found = client.containers.list(all=not running, filters=filters, ignore_removed=True)
    return sorted(found, key=lambda c: (c.status == "running", c.attrs["Created"]), reverse=True)
