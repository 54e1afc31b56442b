"""Which stack each stage runs in: the one table that both runtimes, the images and the tests go by."""

from __future__ import annotations

from collections.abc import Mapping

from ops.stack.model import STACKS, Stack, load

EXTRACT, TRAIN, SERVE = "extract", "train", "serve"
STACK_OF: Mapping[str, str] = {
    **dict.fromkeys(("target", "prepare", "extract", "verify", "store"), EXTRACT),
    **dict.fromkeys(("train", "estimate", "export"), TRAIN),
    **dict.fromkeys(("regenerate", "evaluate"), SERVE),
}
"""stage to the name of its stack"""
STACK_NAMES = tuple(dict.fromkeys(STACK_OF.values()))


def stages_of(name: str) -> tuple[str, ...]:
    """The stages that run in a stack."""
    return tuple(stage for stage, stack in STACK_OF.items() if stack == name)


def stack_of(stage: str) -> Stack:
    """The stack that a stage runs in.

    Raises:
        StackError: it is not there, or its stack.toml is wrong.
    """
    return load(STACKS / STACK_OF[stage])
