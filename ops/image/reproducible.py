"""`./eyas build --check-reproducible`: two builds from two checkouts, with no cache, and their manifests' digests."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ops.container.engine import docker_cli
from ops.image import oci
from ops.image.build import EXACT, Request, build, has_image_store, revision
from ops.image.errors import BuildError
from ops.paths import CHECKOUT

NAME = "eyas-reproducible"


def check(request: Request) -> str:
    """Build the checkout's commit twice, each in a fresh clone at its own path; returns the manifest's digest.

    Raises:
        BuildError: the two differ (which layer and file is named), the engine cannot write images of the OCI layout, or
            the checkout has something that is not committed, which a clone would not have.
    """
    if not has_image_store():
        raise BuildError(
            "the engine keeps images in its old store, which writes no OCI images: turn on the containerd image store "
            '({"features": {"containerd-snapshotter": true}} in /etc/docker/daemon.json)'
        )
    commit = revision(CHECKOUT)
    if commit == "unknown":
        raise BuildError(f"{CHECKOUT} is no git repository, and it is a commit that is built twice; clone it with git")
    if commit.endswith("-dirty"):
        raise BuildError(
            "the checkout has changes that are not committed; commit them, since it is the commit that is built"
        )
    with tempfile.TemporaryDirectory(prefix="eyas-reproducible-") as folder:
        places = {
            f"{NAME}:{number}": Path(folder) / path for number, path in enumerate(("one", "another/deeper"), start=1)
        }
        try:
            digests = [_build(request, commit, place, name) for name, place in places.items()]
            if digests[0] != digests[1]:
                one, two = (oci.read(_saved(name, place)) for name, place in places.items())
                raise BuildError(f"two builds differ: {'; '.join(oci.differences(one, two))}")
        finally:
            _remove(places)
    return digests[0]


def _build(request: Request, commit: str, folder: Path, name: str) -> str:
    """Build into the engine's store, where layers that are the same are kept once; returns the manifest's digest."""
    checkout, told = _clone(folder / "eyas", commit), folder / "built.json"
    print(f"eyas: building {checkout} with no cache", flush=True)
    output = f"type=image,name={name},unpack=false,{EXACT}"
    build(replace(request, checkout=checkout, no_cache=True), output, metadata=told)
    return str(json.loads(told.read_text(encoding="utf-8"))["containerimage.digest"])


def _clone(checkout: Path, commit: str) -> Path:
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(CHECKOUT), str(checkout)], check=True)
    # The checkout may have gone on while the first was built.
    subprocess.run(["git", "-C", str(checkout), "checkout", "--quiet", "--detach", commit], check=True)
    return checkout


def _saved(name: str, folder: Path) -> Path:
    path = folder / "image.tar"
    subprocess.run([*docker_cli(), "image", "save", f"--output={path}", name], check=True)
    return path


def _remove(names: Iterable[str]) -> None:
    for name in names:
        subprocess.run([*docker_cli(), "image", "rm", "--force", name], check=False, capture_output=True)
