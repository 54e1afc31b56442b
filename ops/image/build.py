"""`./eyas build`: the image of a stack, through buildx (BuildKit is not spoken by docker-py)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ops.container.engine import connect, docker_cli
from ops.image.errors import BuildError
from ops.image.names import image_name
from ops.image.source import pipeline_digest
from ops.paths import CHECKOUT
from ops.stack.check import check_lock
from ops.stack.digest import patch_list, stack_digest
from ops.stack.model import Stack, load

EPOCH = "315532800"
"""1980-01-01, the earliest that ZIP knows. Not the commit's time: a layer whose content stays keeps its digest."""

EXACT = "compression=uncompressed"
"""of every output: compressing some 8 GiB would take longer than installing them"""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to build."""

    stack: str = "extract"
    accelerator: str = "cuda"
    target: str = "image"
    base_image: str = ""
    """in place of the stack's own: a mirror's, or a stand-in"""
    run_image: str = ""
    only: tuple[str, ...] = ()
    """packages of a light image, for tests of the build itself"""
    source_builds: str = ""
    """build or skip; build where the stack has any, when empty"""
    max_jobs: int = 4
    cuda_archs: str = "90;100;120"
    no_cache: bool = False
    network: str = ""
    """host: what the build downloads goes through the host's own network"""
    apt_snapshot: str = ""
    """in place of the stack's own; none: whatever the archive has now"""
    secrets: Mapping[str, Path] = field(default_factory=dict)
    """ca, uv: files"""
    checkout: Path = CHECKOUT


def arguments(request: Request) -> dict[str, str]:
    """The Dockerfile's arguments.

    Raises:
        StackError, LockError: the stack cannot be built as it is.
        BuildError: it names no base image, or the engine does not have the one asked for.
    """
    stack = load(request.checkout / "stacks" / request.stack)
    part = stack.accelerator(request.accelerator)
    check_lock(part, stack.lock(request.accelerator))
    base = request.base_image or part.base_image
    run = request.run_image or request.base_image or part.run_image or part.base_image
    if not base:
        raise BuildError(f"[{part.name}] of stack {stack.name} names no base-image; pass --base-image")
    return {
        "STACK": stack.name,
        "ACCELERATOR": part.name,
        "BASE_IMAGE": base,
        "BASE_DIGEST": image_digest(base),
        "RUN_IMAGE": run,
        "RUN_DIGEST": image_digest(run),
        "SOURCE_BUILDS": request.source_builds or ("build" if part.build else "skip"),
        "SOURCE_PACKAGES": " ".join(build.name for build in part.build),
        "SOURCE_BUILD_ENVIRONMENT": " ".join(f"{k}={v}" for b in part.build for k, v in sorted(b.environment.items())),
        "MAX_JOBS": str(request.max_jobs),
        "CUDA_ARCHS": request.cuda_archs,
        "ONLY": " ".join(request.only),
        "PATCHES": stack.patches,
        "APT_SNAPSHOT": "" if request.apt_snapshot == "none" else request.apt_snapshot or part.apt_snapshot,
        **identity(stack, part.name, request.checkout),
        "SOURCE_DATE_EPOCH": EPOCH,
    }


def identity(stack: Stack, accelerator: str, checkout: Path) -> dict[str, str]:
    """What the image will say of itself, as the Dockerfile's arguments."""
    return {
        "STACK_DIGEST": stack_digest(stack, accelerator),
        "PIPELINE_DIGEST": pipeline_digest(checkout / "pipeline"),
        "PATCH_LIST": " ".join(patch["name"] for patch in patch_list(stack)),
        "REVISION": revision(checkout),
    }


def image_digest(image: str) -> str:
    """sha256:... of an image: the one in its name, else the engine's own.

    Raises:
        BuildError: the name has none, and the engine does not have the image.
    """
    if "@" in image:
        return image.rsplit("@", 1)[1]
    from docker.errors import ImageNotFound

    try:
        return str(connect().images.get(image).id)
    except ImageNotFound as error:
        raise BuildError(f"the engine has no image {image}; pull it, or name it with its @sha256 digest") from error


def revision(checkout: Path) -> str:
    """The checkout's commit, with "-dirty" when something in it is not committed; "unknown" outside git."""
    git = ["git", "-C", str(checkout)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return "unknown"
    status = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False)
    return head.stdout.strip() + ("-dirty" if status.stdout.strip() else "")


def command(request: Request, output: str, metadata: Path | None = None) -> list[str]:
    """The buildx command line.

    Args:
        request: what to build.
        output: of buildx's --output.
        metadata: of its --metadata-file.
    """
    given = [f"--build-arg={name}={value}" for name, value in arguments(request).items()]
    secrets = [f"--secret=id={name},src={path}" for name, path in sorted(request.secrets.items())]
    return [
        *(*docker_cli(), "buildx", "build", f"--file={request.checkout / 'Dockerfile'}", f"--target={request.target}"),
        *(*given, *secrets),
        # buildx would add statements with the time of the build; ours are in the image.
        *("--provenance=false", "--sbom=false", f"--output={output}"),
        *([f"--metadata-file={metadata}"] if metadata else []),
        *([f"--network={request.network}"] if request.network else []),
        *(["--no-cache"] if request.no_cache else []),
        str(request.checkout),
    ]


def build(request: Request, output: str = "", *, quiet: bool = False, metadata: Path | None = None) -> str:
    """Build an image and return its name.

    Args:
        request: what to build.
        output: of buildx's --output; the engine's images under the stack's name when empty.
        quiet: show what the build says only when it fails.
        metadata: file for what buildx tells of the image, its digest for one.

    Raises:
        BuildError: the build failed; what it said is above.
        EngineError: no engine (exit codes 50, 51).
    """
    name = image_name(request.stack, request.accelerator)
    line = command(request, output or _into_engine(name), metadata)
    said = subprocess.PIPE if quiet else None
    environment = os.environ | {"SOURCE_DATE_EPOCH": EPOCH}
    done = subprocess.run(
        line, env=environment, stdout=said, stderr=subprocess.STDOUT if quiet else None, text=True, check=False
    )
    if done.returncode:
        print((done.stdout or "")[-6000:], file=sys.stderr)
        raise BuildError(
            f"the image {name} could not be built (its {request.target} target); the build's output says why"
        )
    return name


def _into_engine(name: str) -> str:
    return f"type=image,name={name},{EXACT}" if has_image_store() else f"type=docker,name={name}"


def has_image_store() -> bool:
    """Whether the engine keeps images in containerd's store, whose digests are those of the images as published."""
    status = connect().info().get("DriverStatus") or []
    return ["driver-type", "io.containerd.snapshotter.v1"] in status


def secrets_of(ca: str, uv_config: str) -> dict[str, Path]:
    """The build secrets: the given files, else the certificates that this machine's own variables name.

    Raises:
        BuildError: a given file is not there.
    """
    named = {"ca": ca or os.environ.get("SSL_CERT_FILE", ""), "uv": uv_config or os.environ.get("UV_CONFIG_FILE", "")}
    found = {name: Path(path) for name, path in named.items() if path}
    for name, path in found.items():
        if not path.is_file():
            raise BuildError(f"{path}, the build's secret {name}, is not a file; name another or none")
    return found
