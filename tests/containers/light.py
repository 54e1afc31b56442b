"""Light images, which have the patched package alone: built in seconds, by the same Dockerfile and every step of it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from ops.image import oci
from ops.image.build import EXACT, Request, build, secrets_of
from ops.paths import CHECKOUT


def copy_of_checkout(folder: Path, *, umask: int = 0o022) -> Path:
    """The checkout's files as they are, committed or not, under another path.

    Args:
        folder: made; the copy's place.
        umask: modes as a user with this umask would have them.
    """
    listed = ["git", "-C", str(CHECKOUT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        source, target = CHECKOUT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod((source.stat().st_mode & 0o111 | 0o666) & ~umask)
    return folder


# The one package in a stack's light image: the patched one, where there is one.
ONLY = {"extract": "speculators", "train": "speculators", "serve": "msgspec"}


def light(checkout: Path, base: str, stack: str = "extract") -> Request:
    """The request for a light CPU image of a checkout."""
    only = (ONLY[stack],)
    request = Request(stack=stack, accelerator="cpu", base_image=base, only=only, network="host", checkout=checkout)
    return replace(request, secrets=secrets_of("", ""))


def build_light(checkout: Path, base: str, path: Path, *, no_cache: bool = False) -> oci.Image:
    """Build one into a file and read it."""
    build(replace(light(checkout, base), no_cache=no_cache), f"type=oci,dest={path},{EXACT}", quiet=True)
    return oci.read(path)
