"""What `./eyas doctor` finds out about a machine. A probe never raises: what it cannot find out is the finding."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.local import is_whole
from ops.paths import cache_root

GIB = 1 << 30
# Seconds that a program or daemon has for its answer.
TIMEOUT = 5


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Findings; sizes in bytes."""

    system: str
    python: tuple[int, int]
    has_venv: bool
    cache: Path
    disk_free: int
    memory: int
    cores: int
    cpu_flags: frozenset[str]
    shm: int
    docker: str
    """the engine's version; empty when it does not answer"""
    docker_problem: str
    driver: str
    """the NVIDIA driver's version; empty without one"""
    container_runtime: bool
    stacks: tuple[str, ...]
    """names of the installed stacks"""
    images: tuple[tuple[str, bool], ...] = ()
    """names of the engine's images for stages, and whether each is of this checkout"""


def look() -> Machine:
    """Find out all about this machine."""
    cache = cache_root()
    docker, problem, runtimes, images = _docker()
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        python=(sys.version_info.major, sys.version_info.minor),
        has_venv=importlib.util.find_spec("ensurepip") is not None,
        cache=cache,
        disk_free=shutil.disk_usage(_nearest(cache)).free,
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        cores=len(os.sched_getaffinity(0)),
        cpu_flags=_cpu_flags(Path("/proc/cpuinfo")),
        shm=shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else 0,  # noqa: S108 - only looked at
        docker=docker,
        docker_problem=problem,
        driver=driver(),
        container_runtime="nvidia" in runtimes,
        stacks=tuple(sorted(p.parent.name for p in (cache / "envs").glob("*/stack.json") if is_whole(p.parent))),
        images=images,
    )


def _nearest(place: Path) -> Path:
    return next(parent for parent in (place, *place.parents) if parent.exists())


def _cpu_flags(cpuinfo: Path) -> frozenset[str]:
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.split(":", 1)[1] for line in lines if line.startswith("flags")), "").split())


def _docker() -> tuple[str, str, list[str], tuple[tuple[str, bool], ...]]:
    """The engine's version, why it does not answer, the names of its runtimes, and its images."""
    from docker.errors import DockerException

    from ops.container.engine import connect
    from ops.container.errors import EngineAccessError
    from ops.errors import UserError

    try:
        client = connect(TIMEOUT)
        try:
            return str(client.version()["Version"]), "", list(client.info().get("Runtimes", {})), _images(client)
        finally:
            client.close()
    except EngineAccessError:
        return "", "no permission", [], ()
    except (UserError, DockerException, OSError, KeyError):
        return "", "no engine answers", [], ()


def _images(client: Any) -> tuple[tuple[str, bool], ...]:
    """Images made by ./eyas build, and whether they are of this checkout."""
    from ops.container.image import check_labels
    from ops.errors import UserError
    from ops.image.names import ACCELERATOR, STACK
    from ops.stack.model import STACKS, load

    found = []
    for image in client.images.list(filters={"label": STACK}):
        for name in image.tags:
            try:
                check_labels(
                    name, image.labels, load(STACKS / image.labels[STACK]), image.labels.get(ACCELERATOR, "cpu")
                )
                found.append((name, True))
            except UserError:
                found.append((name, False))
    return tuple(sorted(found))


def driver() -> str:
    """The NVIDIA driver's version; empty without nvidia-smi."""
    said = _nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader")
    if said is None:
        return ""
    return said.split("\n", 1)[0].strip() or "does not answer"


def gpus() -> tuple[str, ...]:
    """Index and UUID of every GPU, and UUID of every MIG device; empty where none can be used."""
    found = []
    for line in (_nvidia_smi("-L") or "").splitlines():
        name = re.search(r"\(UUID: ((?:GPU|MIG)-[^)\s]+)\)", line)
        index = re.match(r"GPU (\d+):", line)
        found += ([index[1]] if index else []) + ([name[1]] if name else [])
    return tuple(found)


def _nvidia_smi(*arguments: str) -> str | None:
    """What nvidia-smi prints: None where there is none, empty where it fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        done = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
