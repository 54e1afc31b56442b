"""Helpers of the tests that run `./eyas` on a real engine: the command in a process, and a stand-in image."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ops.image.names import ACCELERATOR, PIPELINE_DIGEST, STACK_DIGEST
from ops.image.source import pipeline_digest
from ops.paths import CHECKOUT
from ops.stack.digest import stack_digest
from ops.stack.model import STACKS, load

# As the `eyas` script starts it, with the interpreter that the tests run with.
EYAS = [sys.executable, "-E", str(CHECKOUT / "tasks.py")]
# For another user's view: it may read this checkout and its tools wherever they are, and write only its own.
READS_ALL = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
# Seconds. Against hangs only: two cores may have other tests' engines on them.
PATIENCE = 600

# A stage in a shell's words: says that it runs, and ends as a stage does when it is told to.
STAND_IN = """
trap 'echo stopped; exit 130' INT
echo begun
echo aside >&2
i=0
while [ $i -lt 1200 ]; do sleep 0.1; i=$((i+1)); done
"""


def start(arguments: Sequence[str], environment: Mapping[str, str] | None = None, **how: Any) -> subprocess.Popen[str]:
    """Start `./eyas` with what it prints in pipes, in a session of its own, as a terminal would have it."""
    return subprocess.Popen(
        [*how.pop("before", []), *EYAS, *arguments],
        env=os.environ | dict(environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **how,
    )


def begun(client: Any, folder: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[Any, Any]:
    """A task whose stand-in stage runs, and its container, which sees a folder of this test."""
    task = start(arguments, environment)
    assert task.stdout
    assert task.stdout.readline() == "begun\n", task.stderr
    return task, running_container(client, folder)


def stage_flags(folder: Path) -> list[str]:
    """Flags about a target, samples and a store in a folder; the first two are made, with nothing in them."""
    (folder / "target").mkdir()
    (folder / "tokenized.jsonl").write_text("{}\n", encoding="utf-8")
    return [
        *("--model-path", str(folder / "target"), "--prepared-data", str(folder / "tokenized.jsonl")),
        *("--output-dir", str(folder / "store")),
    ]


def finish(task: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    try:
        out, err = task.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(task.pid, signal.SIGKILL)
        raise
    return task.returncode, out, err


def run(arguments: Sequence[str], environment: Mapping[str, str] | None = None, **how: Any) -> tuple[int, str, str]:
    """Run `./eyas` to its end."""
    return finish(start(arguments, environment, **how))


def wait_until(true: Callable[[], Any], what: str) -> Any:
    """Wait for something to become true, and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)
    return found


def containers_of(client: Any, folder: Path) -> list[Any]:
    """Containers, running or not, that see a folder of this test."""
    found = client.containers.list(all=True, filters={"label": f"io.eyas.checkout={CHECKOUT}"}, ignore_removed=True)
    return [one for one in found if any(mount["Source"].startswith(str(folder)) for mount in one.attrs["Mounts"])]


def running_container(client: Any, folder: Path) -> Any:
    """The container of a task, as soon as it runs."""

    def look() -> Any:
        return next((one for one in containers_of(client, folder) if one.status == "running"), None)

    return wait_until(look, "the container to run")


def process_ids_naming(text: str) -> list[int]:
    """Processes whose command line names something, such as a container; this one left out."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        pid = int(place.parent.name)
        try:
            line = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and pid != os.getpid():
            found.append(pid)
    return found


def labels(accelerator: str) -> dict[str, str]:
    """Labels by which an image is of this checkout."""
    digest = stack_digest(load(STACKS / "extract"), accelerator)
    return {ACCELERATOR: accelerator, STACK_DIGEST: digest, PIPELINE_DIGEST: pipeline_digest()}


@contextmanager
def stand_in_image(client: Any, name: str, script: str = STAND_IN, accelerator: str = "cpu") -> Iterator[str]:
    """An image of this machine's shell and `sleep`: what the task does about a container needs no stage in it."""
    changes = [f"LABEL {label}={value}" for label, value in labels(accelerator).items()]
    changes += ["STOPSIGNAL SIGINT", "ENTRYPOINT " + _json(["/bin/sh", "-c", script])]
    repository, tag = name.split(":")
    client.api.import_image_from_data(_root(), repository=repository, tag=tag, changes=changes)
    try:
        yield name
    finally:
        client.images.remove(name, force=True)


def _json(words: list[str]) -> str:
    import json

    return json.dumps(words)


def _root() -> bytes:
    """A root file system, as a tar file: a shell, a few tools and the libraries that they are linked with."""
    root = io.BytesIO()
    tools = [Path("/bin", name).resolve() for name in ("dash", "bash", "sleep", "cat", "id", "touch")]
    with tarfile.open(fileobj=root, mode="w") as tar:
        for tool in tools:
            tar.add(tool, f"bin/{tool.name}")
        tar.add("/bin/dash", "bin/sh") if not Path("/bin/dash").is_symlink() else None
        for library in sorted({line for tool in tools for line in _linked(tool)}):
            tar.add(Path(library).resolve(), library.lstrip("/"))
    return root.getvalue()


def _linked(tool: Path) -> list[str]:
    said = subprocess.run(["ldd", str(tool)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(/\S+) \(0x", said)
