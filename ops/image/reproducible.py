"""`./eyas build --check-reproducible`: two builds from two checkouts, with no cache, and their manifests' digests."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from ops.image import oci
from ops.image.build import EXACT, Request, build, has_image_store, revision
from ops.image.errors import BuildError
from ops.paths import CHECKOUT


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
    if revision(CHECKOUT).endswith("-dirty"):
        raise BuildError(
            "the checkout has changes that are not committed; commit them, since it is the commit that is built"
        )
    with tempfile.TemporaryDirectory(prefix="eyas-reproducible-") as name:
        images = [_build(request, Path(name) / path) for path in ("one", "another/deeper")]
        if images[0].digest != images[1].digest:
            raise BuildError(f"two builds differ: {'; '.join(oci.differences(*images))}")
        return images[0].digest


def _build(request: Request, folder: Path) -> oci.Image:
    checkout = folder / "eyas"
    clone = ["git", "clone", "--quiet", "--no-hardlinks", str(CHECKOUT), str(checkout)]
    subprocess.run(clone, check=True)
    path = folder / "image.tar"
    print(f"eyas: building {checkout} with no cache", flush=True)
    build(replace(request, checkout=checkout, no_cache=True), oci_output(path))
    return oci.read(path)


def oci_output(path: Path) -> str:
    """The --output for an image in a file, with the digest that the same image has in the engine."""
    return f"type=oci,dest={path},{EXACT}"
