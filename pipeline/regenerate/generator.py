"""What a generator is to the rest of the stage: many prompts in flight, answers as they are finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Request:
    """A prompt to be answered.

    Attributes:
        name: by which its answer is known; unique among those in flight.
        prompt: token ids.
        seed: of its own draws.
        max_new_tokens: after which it is cut off.
    """

    name: str
    prompt: list[int]
    seed: int
    max_new_tokens: int


@dataclass(frozen=True)
class Answer:
    """What the target wrote.

    Attributes:
        name: of the request.
        produced: token ids, the one that ended it included.
        finished: whether the target ended it; else it was cut off.
    """

    name: str
    produced: list[int]
    finished: bool


class Generator(Protocol):
    """The target, writing."""

    def begin_unit(self) -> None:
        """Forget what earlier units left behind: a unit's answers depend on nothing but the unit.

        Raises:
            EngineError: it failed.
        """

    def submit(self, request: Request) -> None:
        """Take a prompt.

        Raises:
            EngineError: it failed.
        """

    def advance(self) -> Sequence[Answer]:
        """Go on for a moment; returns what was finished, if anything.

        Raises:
            EngineError: it failed.
        """

    def close(self) -> None:
        """End the engine's processes and free its memory."""
