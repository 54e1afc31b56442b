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


def image_name(stack: str, accelerator: str) -> str:
    """The image's name; EYAS_IMAGE, if set, names another, such as one at a mirror."""
    return os.environ.get("EYAS_IMAGE") or f"eyas-{stack}:{accelerator}"
