"""`python -m ops.image.record`, run while an image is built: stack.json, sbom.cdx.json and provenance.json.

What the host said goes into the labels; it is compared here with what the build has, so that no label can be wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path

from ops.errors import UserError
from ops.image import sbom
from ops.image.errors import BuildError
from ops.image.source import pipeline_digest
from ops.stack.check import check_lock, find_site_packages, installed_packages
from ops.stack.digest import stack_digest
from ops.stack.identity import write_identity
from ops.stack.model import STACKS, Stack, load

TEXTS = (
    *("accelerator", "only", "source-builds", "base-image", "base-digest", "run-image", "run-digest"),
    *("stack-digest", "pipeline-digest", "revision"),
)
PYTHON_VERSION = "import platform; print(platform.python_version())"


def main(argv: list[str]) -> int:
    """Write the three files.

    Args:
        argv: flags; see the Dockerfile, their only user.
    """
    flags = argparse.ArgumentParser(prog="python -m ops.image.record", description=__doc__)
    flags.add_argument("--stack", required=True)
    flags.add_argument("--environment", type=Path, required=True)
    flags.add_argument("--output", type=Path, required=True)
    for name in TEXTS:
        flags.add_argument(f"--{name}", required=True)
    given = flags.parse_args(argv)
    try:
        stack = load(STACKS / given.stack)
        check_said(stack, given)
        write(stack, given)
    except UserError as error:
        print(f"eyas: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def check_said(stack: Stack, given: argparse.Namespace) -> None:
    """Compare the digests the host passed with those of the files the build has.

    Raises:
        BuildError: one differs.
    """
    has = {"STACK_DIGEST": stack_digest(stack, given.accelerator), "PIPELINE_DIGEST": pipeline_digest()}
    said = {"STACK_DIGEST": given.stack_digest, "PIPELINE_DIGEST": given.pipeline_digest}
    for name, digest in has.items():
        if said[name] != digest:
            raise BuildError(
                f"argument {name} is {said[name] or 'not given'}, the files' is {digest}; use ./eyas build"
            )


def write(stack: Stack, given: argparse.Namespace) -> None:
    """Write the files from what is installed."""
    python = str(given.environment / "bin" / "python")
    version = subprocess.run([python, "-c", PYTHON_VERSION], check=True, capture_output=True, text=True).stdout.strip()
    identity = write_identity(stack, given.accelerator, version, given.output / given.environment.name)
    lock = check_lock(stack.accelerator(given.accelerator), stack.lock(given.accelerator))
    hashes = {entry.name: entry.hashes[0] for entry in lock.entries if len(entry.hashes) == 1}
    python_packages = installed_packages(find_site_packages(given.environment))
    bill = sbom.make(f"eyas-{stack.name}", identity["digest"], python_packages, sbom.debian_packages(), hashes)
    (given.output / "sbom.cdx.json").write_text(bill, encoding="utf-8")
    provenance = {
        "format": 1,
        "stack": identity,
        "base": {"image": given.base_image, "digest": given.base_digest},
        "run": {"image": given.run_image, "digest": given.run_digest},
        "source": {"revision": given.revision, "pipeline_digest": given.pipeline_digest},
        "built": {"only": given.only.split(), "source_builds": given.source_builds},
        "sbom_sha256": hashlib.sha256(bill.encode()).hexdigest(),
    }
    text = json.dumps(provenance, indent=2, sort_keys=True) + "\n"
    (given.output / "provenance.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
