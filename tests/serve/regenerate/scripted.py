"""A generator that writes what a test tells it to, in an order that is not the one it was asked in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipeline.regenerate.generator import Answer, Request

Say = Callable[[str, int], str]


def echo(prompt: str, seed: int) -> str:
    """An answer that tells of the last question and of nothing else."""
    return "You said: " + prompt.rsplit("<|im_start|>user\n", maxsplit=1)[-1].split("<|im_end|>", maxsplit=1)[0]


class Scripted:
    """Three prompts are in flight; of these the one that came last is finished first."""

    def __init__(self, tokenizer: Any, say: Say = echo) -> None:
        self._tokenizer, self._say = tokenizer, say
        self._queue: list[Request] = []
        self.units: list[list[Request]] = []
        self.closed = False

    @property
    def requests(self) -> list[Request]:
        return [request for unit in self.units for request in unit]

    def begin_unit(self) -> None:
        assert not self._queue
        self.units.append([])

    def submit(self, request: Request) -> None:
        self._queue.append(request)
        self.units[-1].append(request)

    def advance(self) -> Sequence[Answer]:
        assert self._queue, "nothing is in flight"
        request = self._queue.pop(min(3, len(self._queue)) - 1)
        text = self._say(self._tokenizer.decode(request.prompt), request.seed)
        produced = self._tokenizer(text + "<|im_end|>", add_special_tokens=False)["input_ids"]
        finished = len(produced) <= request.max_new_tokens
        return [Answer(request.name, produced[: request.max_new_tokens], finished)]

    def close(self) -> None:
        self.closed = True
