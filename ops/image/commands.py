"""What `./eyas build` and `./eyas smoke` do with their flags."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ops.container.errors import RuntimeFlagError
from ops.image.build import Request, build, image_digest, secrets_of
from ops.image.check import smoke
from ops.image.reproducible import check
from ops.probes import look
from ops.stack.model import STACKS, load
from ops.stack.stages import STACK_NAMES

ALL = "all"


def requests_for(given: dict[str, Any]) -> tuple[Request, ...]:
    """What the flags ask for, one request for each stack; without --accelerator, CUDA where there is a GPU.

    Raises:
        StackError: there is no such stack.
    """
    names = STACK_NAMES if given["stack"] == ALL else (load(STACKS / given["stack"]).name,)
    one = _request(given)
    return tuple(replace(one, stack=name) for name in names)


def _request(given: dict[str, Any]) -> Request:
    accelerator = given["accelerator"]
    if not accelerator:
        driver = look().driver
        accelerator = "cuda" if driver else "cpu"
        print(f"eyas: for {accelerator}: {f'NVIDIA driver {driver}' if driver else 'no GPU here'}", flush=True)
    return Request(
        accelerator=accelerator,
        base_image=given["base_image"],
        run_image=given["run_image"],
        only=tuple(given["only"].split()),
        source_builds="skip" if given["skip_source_builds"] else "",
        max_jobs=_count(given["max_jobs"]) if given["max_jobs"] else Request.max_jobs,
        cuda_archs=given["cuda_archs"] or Request.cuda_archs,
        no_cache=given["no_cache"],
        network=given["network"],
        apt_snapshot=given["apt_snapshot"],
        secrets=secrets_of(given["ca"], given["uv_config"]),
    )


def _count(value: str) -> int:
    if not value.isdigit() or not int(value):
        raise RuntimeFlagError(f"--max-jobs {value}: give a whole number of 1 or more")
    return int(value)


def run_build(given: dict[str, Any]) -> None:
    """Build the image, or with --check-reproducible two and compare; with --stack all, of each stack in turn."""
    for request in requests_for(given):
        if given["check_reproducible"]:
            print(f"reproducible: two builds of {request.stack}, one manifest {check(request)}", flush=True)
        else:
            name = build(request)
            print(f"{name} {image_digest(name)}", flush=True)


def run_smoke(given: dict[str, Any]) -> None:
    """Check the image, or with --stack all each."""
    for request in requests_for(given):
        smoke(request)
