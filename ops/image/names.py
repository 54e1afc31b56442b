"""What images and their labels are called. The labels of a built image are read in `ops.container`."""

from __future__ import annotations

import os

STACK = "io.eyas.stack"
ACCELERATOR = "io.eyas.accelerator"
STACK_DIGEST = "io.eyas.stack.digest"
PIPELINE_DIGEST = "io.eyas.pipeline.digest"
PATCHES = "io.eyas.patches"
REVISION = "org.opencontainers.image.revision"
BASE_NAME = "org.opencontainers.image.base.name"
BASE_DIGEST = "org.opencontainers.image.base.digest"


def variable(stack: str) -> str:
    """The variable that names another image for a stack, such as one at a mirror."""
    return "EYAS_IMAGE" if stack == "extract" else f"EYAS_{stack.upper()}_IMAGE"


def image_name(stack: str, accelerator: str) -> str:
    """The image's name: the variable's value where it is set."""
    return os.environ.get(variable(stack)) or f"eyas-{stack}:{accelerator}"


def build_command(stack: str, accelerator: str) -> str:
    """The command that builds the image."""
    named = "" if stack == "extract" else f" --stack {stack}"
    return f"./eyas build --accelerator {accelerator}{named}"
