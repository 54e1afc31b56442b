"""An engine's refusal, which is written for its developers, as a sentence with the remedy."""

from __future__ import annotations

import re

from ops.container.errors import GpuError, ImageMissingError, StartError
from ops.doctor import OLDEST_DRIVER
from ops.errors import UserError

# What the engine says, the error's class, and the sentence; {0} is the message's end, {1} what the pattern caught.
_SENTENCES: tuple[tuple[str, type[UserError], str], ...] = (
    (
        r"unsatisfied condition: cuda|driver version is insufficient",
        GpuError,
        f"the NVIDIA driver is too old for CUDA 12.8, which needs {OLDEST_DRIVER}: update it, or use --gpus none",
    ),
    (
        r"unknown device|device error|unresolvable CDI devices",
        GpuError,
        "a GPU that was asked for does not exist: nvidia-smi -L lists them ({0})",
    ),
    (r"(?i)nvidia", GpuError, "the NVIDIA container toolkit failed: {0}; see nvidia-smi and nvidia-ctk"),
    (
        r"bind source path does not exist: (\S+)",
        StartError,
        "cannot mount {1}: the engine does not see it; is the engine on another machine?",
    ),
    (
        r"(?i)no such image|manifest unknown|image .* not found|content digest \S+: not found",
        ImageMissingError,
        "the image was removed while a container was made from it: ./eyas build, and run again",
    ),
    (
        r"no space left on device|disk quota exceeded",
        StartError,
        "the engine's disk is full: free some (docker system df says what is held; {0})",
    ),
    (r"", StartError, "the engine could not start the container: {0}"),
)
_NO_RUNTIME = (
    "the engine cannot give GPUs to containers: install nvidia-container-toolkit, run "
    "sudo nvidia-ctk runtime configure --runtime=docker, and restart docker; or use --gpus none"
)
_NO_GPU = "this machine has no NVIDIA GPU that the engine could use (no driver answers): use --gpus none"


def explain(said: str, *, driver: str) -> UserError:
    """The error for what an engine said when it would not create or start a container.

    Args:
        said: the engine's message.
        driver: the NVIDIA driver's version; empty without one.
    """
    text = " ".join(said.split())
    if "could not select device driver" in text:
        return GpuError(_NO_RUNTIME if driver else _NO_GPU)
    for pattern, kind, sentence in _SENTENCES:
        if found := re.search(pattern, text):
            return kind(sentence.format(_short(text), *found.groups()))
    raise AssertionError("the last pattern is in every text")


def _short(text: str) -> str:
    # The engine puts the cause last, after a chain of what called what.
    return text if len(text) <= 300 else f"...{text[-300:]}"
