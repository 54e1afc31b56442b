"""`./eyas doctor`: what this machine can do, what is missing, and the remedy.

`probes` looks at the machine, the functions here judge what it found, so that each judgement is tested on machines that
are not at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version
from rich.console import Console
from rich.table import Table

from ops import probes
from ops.errors import DoctorError
from ops.local import MARGIN_GIB
from ops.probes import GIB, Machine
from ops.stack.model import STACKS, load
from ops.stack.stages import EXTRACT, SERVE, STACK_NAMES, TRAIN

# NVIDIA, CUDA 12.8 release notes, table "CUDA Toolkit and Corresponding Driver Versions", Linux x86-64, 12.8 GA.
OLDEST_DRIVER = Version("570.26")
# Python that the locks cover.
PYTHONS = ((3, 10), (3, 13))
# The extract stack's environment and a margin, see stack.toml and ops.local.
DISK_GIB = 10
# What installs each stack locally.
INSTALLS = {EXTRACT: "./eyas extract", TRAIN: "./eyas train", SERVE: "./eyas evaluate"}
# The demo in float32 with vLLM's CPU engine and its KV cache.
MEMORY_GIB = 6
# NCCL and vLLM's message queues need more than Docker's default of 64 MiB.
SHM_GIB = 1


class State(Enum):
    """How a line of the report stands."""

    OK = "ok"
    MISSING = "missing"
    NOT_NEEDED = "not needed here"


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    what: str
    found: str
    state: State
    remedy: str = ""
    required: bool = False
    """whether `./eyas extract` on this machine needs it"""


def _required(what: str, found: str, good: bool, remedy: str) -> Check:
    return Check(what, found, State.OK if good else State.MISSING, "" if good else remedy, required=True)


def _optional(what: str, found: str, good: bool, remedy: str, *, wanted: bool = True) -> Check:
    """A line the main job can do without; `wanted` says whether this machine has a use for it."""
    if good:
        return Check(what, found, State.OK)
    return Check(what, found, State.MISSING if wanted else State.NOT_NEEDED, remedy if wanted else "")


def judge(machine: Machine) -> list[Check]:
    """Every line of the report for what was found on a machine."""
    return [*_for_extract(machine), *_for_containers(machine), *_for_gpu(machine), *_stacks(machine)]


def _for_extract(machine: Machine) -> list[Check]:
    version = ".".join(map(str, machine.python))
    vector = [flag for flag in ("avx512f", "avx2") if flag in machine.cpu_flags]
    # An installed stack needs no more room.
    room = machine.disk_free >= DISK_GIB * GIB or bool(_installed(machine, EXTRACT))
    return [
        _required("system", machine.system, machine.system == "Linux x86_64", "use an x86-64 Linux machine"),
        _required("python", version, PYTHONS[0] <= machine.python <= PYTHONS[1], "install Python 3.10 to 3.13"),
        _required("venv", "found" if machine.has_venv else "none", machine.has_venv, f"install python{version}-venv"),
        _required(
            "disk free",
            f"{machine.disk_free / GIB:.0f} GiB at {machine.cache}",
            room,
            f"free {DISK_GIB} GiB there, or set XDG_CACHE_HOME to a larger disk",
        ),
        _required(
            "memory",
            f"{machine.memory / GIB:.0f} GiB",
            machine.memory >= MEMORY_GIB * GIB,
            f"use a machine with {MEMORY_GIB} GiB or more",
        ),
        _required(
            "CPU", f"{machine.cores} cores, {vector[0] if vector else 'no AVX2'}", bool(vector), "use a CPU with AVX2"
        ),
    ]


def _for_containers(machine: Machine) -> list[Check]:
    problem = machine.docker_problem
    return [
        _optional("docker", machine.docker or problem, bool(machine.docker), _engine_remedy(problem)),
        *_images(machine),
        _optional(
            "/dev/shm",  # noqa: S108 - a name in the table
            f"{machine.shm / GIB:.1f} GiB",
            machine.shm >= SHM_GIB * GIB,
            f"for --tp-size over 1: mount -o remount,size={SHM_GIB}g /dev/shm",
        ),
    ]


def _engine_remedy(problem: str) -> str:
    what = "sudo usermod -aG docker $USER, then log in again" if problem == "no permission" else "start it"
    return f"needed for images only: {what}"


def _images(machine: Machine) -> list[Check]:
    if not machine.images:
        return [Check("image", "none", State.NOT_NEEDED, "./eyas build makes it" if machine.docker else "")]
    return [_optional("image", name, fits, f"older than the checkout: {_build(name)}") for name, fits in machine.images]


def _build(image: str) -> str:
    named = next((f" --stack {name}" for name in (TRAIN, SERVE) if image.startswith(f"eyas-{name}:")), "")
    return f"./eyas build{named}"


def _for_gpu(machine: Machine) -> list[Check]:
    if not machine.driver:
        return [
            Check("NVIDIA driver", "no GPU found", State.NOT_NEEDED),
            Check("NVIDIA container runtime", "no GPU found", State.NOT_NEEDED),
        ]
    return [
        _optional(
            "NVIDIA driver",
            machine.driver,
            driver_is_new_enough(machine.driver),
            f"install driver {OLDEST_DRIVER} or newer, which CUDA 12.8 needs",
        ),
        _optional(
            "NVIDIA container runtime",
            "found" if machine.container_runtime else "none",
            machine.container_runtime,
            "install nvidia-container-toolkit and restart docker",
            wanted=bool(machine.docker),
        ),
    ]


def _stacks(machine: Machine) -> list[Check]:
    return [check for name in STACK_NAMES for check in _stack(machine, name)]


def _stack(machine: Machine, name: str) -> list[Check]:
    if installed := _installed(machine, name):
        return [Check("stack", environment, State.OK) for environment in installed]
    part = load(STACKS / name).accelerator("cpu")
    version = ".".join(map(str, machine.python))
    if version not in SpecifierSet(part.python):
        # The main job has a line of its own about Python.
        return [Check("stack", f"{name} not installed", State.MISSING, f"it runs on Python {part.python}: install one")]
    size = part.installed_gib + MARGIN_GIB
    if machine.disk_free < size * GIB:
        return [Check("stack", f"{name} not installed", State.MISSING, f"free {size} GiB at {machine.cache} for it")]
    remedy = f"the first {INSTALLS[name]} installs it, about {part.installed_gib} GiB"
    return [Check("stack", f"{name} not installed", State.NOT_NEEDED, remedy)]


def _installed(machine: Machine, name: str) -> list[str]:
    return [environment for environment in machine.stacks if environment.startswith(f"{name}-")]


def driver_is_new_enough(driver: str) -> bool:
    """Whether a driver's version runs CUDA 12.8 programs."""
    try:
        return Version(driver) >= OLDEST_DRIVER
    except InvalidVersion:
        return False


def report() -> None:
    """Print the table.

    Raises:
        DoctorError: `./eyas extract` cannot run on this machine.
    """
    checks = judge(probes.look())
    table = Table("", "found", "state", "remedy")
    colours = {State.OK: "green", State.MISSING: "red", State.NOT_NEEDED: "dim"}
    for check in checks:
        table.add_row(check.what, check.found, f"[{colours[check.state]}]{check.state.value}", check.remedy)
    Console().print(table)
    missing = [check for check in checks if check.required and check.state is State.MISSING]
    if missing:
        raise DoctorError(
            "./eyas extract cannot run here: " + "; ".join(f"{c.what} is {c.found}, {c.remedy}" for c in missing)
        )
    print("./eyas extract can run on this machine")
