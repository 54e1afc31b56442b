"""`./eyas smoke`: the checks of the build's own `smoke` target, then those of the image as the engine has it."""

from __future__ import annotations

import io
import json
import os
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ops.container.engine import connect
from ops.container.errors import ImageMissingError
from ops.container.image import missing
from ops.image import names
from ops.image.build import Request, build
from ops.image.errors import SmokeError

if TYPE_CHECKING:
    from docker.models.containers import Container
    from docker.models.images import Image

STARTED_AS = "54321:54321"
"""a user that no passwd file has"""


def smoke(request: Request) -> None:
    """Check an image and say what was checked.

    Raises:
        BuildError: the smoke target failed; its output is above.
        SmokeError: the image in the engine is not what its labels say, or does not start.
        ImageMissingError: the engine does not have it.
    """
    name, variable = names.image_name(request.stack, request.accelerator), names.variable(request.stack)
    if os.environ.get(variable):
        print(f"eyas: {variable} names {name}, which was not built here: its build's smoke target is not run")
    else:
        build(replace(request, target="smoke"), "type=cacheonly")
    from docker.errors import ImageNotFound

    client = connect()
    try:
        image = client.images.get(name)
    except ImageNotFound as error:
        raise ImageMissingError(missing(name, request.stack, request.accelerator)) from error
    print(f"ok  {name} {image.id}")
    container = client.containers.create(
        image,
        ["--help"],
        user=STARTED_AS,
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
    )
    try:
        check_labels(image, container)
        check_start(container)
    finally:
        container.remove(force=True)


def check_labels(image: Image, container: Container) -> None:
    """Compare the image's labels with the record that its build made from what is in it.

    Raises:
        SmokeError: they differ.
    """
    record = _json(container, "/opt/eyas/provenance.json")
    said = {
        names.STACK: record["stack"]["name"],
        names.ACCELERATOR: record["stack"]["accelerator"],
        names.STACK_DIGEST: record["stack"]["digest"],
        names.PIPELINE_DIGEST: record["source"]["pipeline_digest"],
        names.PATCHES: " ".join(patch["name"] for patch in record["stack"]["patches"]),
        names.REVISION: record["source"]["revision"],
        names.BASE_NAME: record["run"]["image"],
        names.BASE_DIGEST: record["run"]["digest"],
    }
    labels = image.labels
    for label, value in said.items():
        if labels.get(label) != value:
            raise SmokeError(
                f"label {label} is {labels.get(label)}, the image's own record says {value}; build it again"
            )
    if _json(container, "/opt/eyas/env/stack.json") != record["stack"]:
        raise SmokeError("stack.json and provenance.json in the image differ; build it again")
    bill = _json(container, "/opt/eyas/sbom.cdx.json")
    print(f"ok  {len(said)} labels as in provenance.json; {len(bill['components'])} components in sbom.cdx.json")


def check_start(container: Container) -> None:
    """Start the image's stages as a user without a name, with nothing writable, and see them answer.

    Raises:
        SmokeError: it does not end with 0.
    """
    container.start()
    code = container.wait(timeout=120)["StatusCode"]
    if code:
        said = container.logs().decode(errors="replace").strip().splitlines()
        raise SmokeError(f"the image does not start as user {STARTED_AS} (exit code {code}): {(said or [''])[-1]}")
    print(f"ok  starts as user {STARTED_AS}, read-only, with no capability and no network")


def _json(container: Container, path: str) -> Any:
    parts, _ = container.get_archive(path)
    with tarfile.open(fileobj=io.BytesIO(b"".join(parts))) as tar:
        file = tar.extractfile(tar.getmembers()[0])
        if file is None:
            raise SmokeError(f"{path} in the image is no file; build it again")
        return json.load(file)
