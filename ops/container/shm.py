"""The size of a container's /dev/shm, which an engine's processes pass their messages through."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ops.container.errors import RuntimeFlagError, StartError

MIB = 1 << 20
VARIABLE = "EYAS_SHM_SIZE"
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def needed(tp_size: int) -> int:
    """Bytes that vLLM 0.16's queues take: one of 10 x 16 MiB to all workers, one of 10 x 24 MiB from each of them.

    Source: vllm/distributed/device_communicators/shm_broadcast.py and v1/executor/multiproc_executor.py. With less, a
    worker dies of a bus error in the middle of a run.
    """
    return (160 + 240 * tp_size) * MIB


def shm_size(environment: Mapping[str, str], tp_size: int) -> int:
    """The size: EYAS_SHM_SIZE, else 1 GiB for each device: the queues, and room for NCCL's own segments.

    It is a limit: memory is taken only where it is written.

    Raises:
        RuntimeFlagError: EYAS_SHM_SIZE is no size.
        StartError: it is too small for the queues.
    """
    given = environment.get(VARIABLE, "")
    if not given:
        return tp_size << 30
    found = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", given.strip().lower())
    if not found:
        raise RuntimeFlagError(f"{VARIABLE}={given} is no size: give one like 8g")
    size = int(found[1]) * _UNITS[found[2]]
    if size < needed(tp_size):
        raise StartError(
            f"{VARIABLE}={given} is too small a /dev/shm for --tp-size {tp_size}: vLLM's queues take "
            f"{needed(tp_size) // MIB} MiB; unset it or give more"
        )
    return size
