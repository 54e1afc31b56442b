"""`--gpus all|none|0,1|UUID[,UUID]`: what it means for the engine, and whether this machine has it.

CUDA_VISIBLE_DEVICES is left alone: in the container the GPUs asked for are all there are, numbered from 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ops.container.errors import GpuError, RuntimeFlagError

if TYPE_CHECKING:
    from docker.types import DeviceRequest

ALL = "all"
NONE = "none"
# As nvidia-smi -L prints them; MIG-GPU-.../1/0 is the form that drivers before 470 gave.
_HEX = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DEVICE = re.compile(rf"\d+|GPU-{_HEX}|MIG-{_HEX}|MIG-GPU-{_HEX}/\d+/\d+")


@dataclass(frozen=True)
class Gpus:
    """GPUs asked for: all of them, or those in `devices`; none when both say so."""

    every: bool = False
    devices: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.every or bool(self.devices)

    @property
    def accelerator(self) -> str:
        """Which image they need: cuda or cpu."""
        return "cuda" if self else "cpu"

    def requests(self) -> list[DeviceRequest]:
        """What the engine is asked for: the JSON that `docker run --gpus` sends."""
        from docker.types import DeviceRequest

        if not self:
            return []
        devices = [] if self.every else list(self.devices)
        return [DeviceRequest(count=-1 if self.every else 0, device_ids=devices, capabilities=[["gpu"]])]

    def check(self, driver: str, present: tuple[str, ...]) -> None:
        """Refuse early what the engine would refuse in words nobody knows.

        Args:
            driver: the NVIDIA driver's version; empty where none is seen (the engine's own answer then counts).
            present: index and UUID of each GPU, and UUID of each MIG device.

        Raises:
            GpuError: the driver is too old, or a GPU is not there.
        """
        from ops.doctor import OLDEST_DRIVER, driver_is_new_enough

        if not self or not driver:
            return
        if not driver_is_new_enough(driver):
            raise GpuError(
                f"the NVIDIA driver is {driver}; CUDA 12.8 needs {OLDEST_DRIVER} or newer: update it, "
                "or use --gpus none"
            )
        missing = [device for device in self.devices if device not in present]
        if missing:
            raise GpuError(
                f"--gpus {','.join(missing)}: not on this machine, which has {', '.join(present) or 'none'} "
                "(nvidia-smi -L lists them)"
            )


def parse(value: str) -> Gpus:
    """What a value of --gpus asks for.

    Raises:
        RuntimeFlagError: it is not one of the forms above.
    """
    if value in {ALL, NONE}:
        return Gpus(every=value == ALL)
    devices = tuple(part.strip() for part in value.split(","))
    wrong = [device for device in devices if not _DEVICE.fullmatch(device)]
    if wrong:
        raise RuntimeFlagError(
            f"--gpus {value}: {wrong[0]!r} is no GPU; give all, none, indices (0,1), or UUIDs as "
            "nvidia-smi -L prints them"
        )
    if len(set(devices)) != len(devices):
        raise RuntimeFlagError(f"--gpus {value}: a GPU is named twice")
    return Gpus(devices=devices)
