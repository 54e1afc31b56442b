"""The image of a stack: its name, and whether it is there and of this checkout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ops.container.errors import GpuError, ImageMissingError, ImageOldError
from ops.image.names import ACCELERATOR, PIPELINE_DIGEST, STACK_DIGEST, build_command, image_name, variable
from ops.image.source import pipeline_digest
from ops.stack.digest import stack_digest
from ops.stack.model import Stack

if TYPE_CHECKING:
    import docker


def find_image(client: docker.DockerClient, stack: Stack, accelerator: str) -> str:
    """The id of the image that a container is made from: the very image whose labels were checked.

    Raises:
        ImageMissingError: the engine has none of that name.
        ImageOldError: it was built from another state of the checkout.
        GpuError: it is for another accelerator.
    """
    from docker.errors import ImageNotFound

    name = image_name(stack.name, accelerator)
    try:
        image = client.images.get(name)
    except ImageNotFound as error:
        raise ImageMissingError(missing(name, stack.name, accelerator)) from error
    check_labels(name, image.labels, stack, accelerator)
    return str(image.id)


def missing(name: str, stack: str, accelerator: str) -> str:
    """The sentence for an image that is not there."""
    return (
        f"the engine has no image {name}: make it with {build_command(stack, accelerator)}, load it "
        f"(docker load), or name another in {variable(stack)}"
    )


def check_labels(name: str, labels: Mapping[str, str], stack: Stack, accelerator: str) -> None:
    """Compare what an image was built from with the checkout; see `find_image` for the errors."""
    found, renamed = labels.get(ACCELERATOR, accelerator), variable(stack.name)
    if found != accelerator:
        remedy = "give --gpus none" if found == "cpu" else "it needs a GPU: give --gpus all"
        raise GpuError(f"image {name} is for {found}, not for {accelerator}: {remedy}, or change {renamed}")
    wanted = {
        STACK_DIGEST: (stack_digest(stack, accelerator), "stack"),
        PIPELINE_DIGEST: (pipeline_digest(), "pipeline"),
    }
    other = [what for label, (digest, what) in wanted.items() if labels.get(label) != digest]
    if other:
        raise ImageOldError(
            f"image {name} is older than the checkout (other {' and '.join(other)}): "
            f"{build_command(stack.name, accelerator)}"
        )
