"""The `docker run` line of a container: what --dry-run prints, and what a shell is started with."""

from __future__ import annotations

import csv
import io
import shlex

from ops.container.mounts import Mount
from ops.container.spec import LOG_OPTIONS, TMPFS, ContainerSpec


def docker_run(spec: ContainerSpec, docker: str = "docker") -> list[str]:
    """The command line, word by word, that runs the same container as `spec.to_config` describes."""
    words = [docker, "run", "--rm", "--init", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    words += ["--ipc", "private", "--shm-size", str(spec.shm_size), "--network", spec.network]
    words += ["--tmpfs", f"/tmp:{TMPFS}", "--log-driver", "json-file"]  # noqa: S108 - the container's own
    for name, value in LOG_OPTIONS.items():
        words += ["--log-opt", f"{name}={value}"]
    words += ["--user", spec.user]
    for group in spec.groups:
        words += ["--group-add", str(group)]
    for mount in spec.mounts:
        words += ["--mount", _mount(mount)]
    for name, value in spec.environment.items():
        words += ["--env", f"{name}={value}"]
    for name, value in spec.labels.items():
        words += ["--label", f"{name}={value}"]
    if spec.gpus:
        words += ["--gpus", "all" if spec.gpus.every else _row(f"device={','.join(spec.gpus.devices)}")]
    words += ["--interactive"] if spec.interactive else []
    words += ["--tty"] if spec.tty else []
    words += ["--entrypoint", spec.entrypoint] if spec.entrypoint else []
    return [*words, spec.image, *spec.command]


def printed(spec: ContainerSpec, folders: list[str]) -> str:
    """The line for a person: quoted for a shell, with the folders made first that a mount needs."""
    return f"mkdir -p {shlex.join(folders)} && {shlex.join(docker_run(spec))}"


def _mount(mount: Mount) -> str:
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    return _row(*fields, *(["readonly"] if mount.read_only else []))


def _row(*fields: str) -> str:
    # The docker command reads these values as a line of CSV.
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
