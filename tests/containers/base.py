"""The stand-in for a base image: Debian by mmdebstrap and `docker import`, since no registry of images is used here."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import docker
from docker.errors import ImageNotFound

# What ops/image/os-packages.sh would install, so that a build needs no package of the operating system.
PACKAGES = ("ca-certificates", "python3", "python3-venv", "python3-dev", "gcc", "g++", "libc6-dev", "libnuma1")


def ensure_base(client: docker.DockerClient, tools: list[str], folder: Path) -> str:
    """Name of the base image, made first if the engine does not have it.

    Args:
        client: of the engine.
        tools: the docker command.
        folder: for a file of half a gigabyte.
    """
    recipe = " ".join([*PACKAGES, codename()])
    name = f"eyas-test-base:{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    try:
        client.images.get(name)
    except ImageNotFound:
        tar = folder / "base.tar"
        include = f"--include={','.join(PACKAGES)}"
        command = ["mmdebstrap", "--quiet", "--variant=minbase", include, codename(), str(tar)]
        subprocess.run(command, check=True, env=os.environ | {"SOURCE_DATE_EPOCH": "315532800"})
        subprocess.run([*tools, "import", str(tar), name], check=True, capture_output=True)
        tar.unlink()
    return name


def codename() -> str:
    """The machine's own Debian suite, whose mirror is known to work."""
    lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    return next((line.split("=", 1)[1] for line in lines if line.startswith("VERSION_CODENAME=")), "bookworm")
