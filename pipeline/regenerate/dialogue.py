"""One conversation on its way: which of its turns the target answers anew, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pipeline.prepare.conversation import UNFINISHED
from pipeline.prepare.rejection import Rejection

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Turn:
    """An answer that the target wrote.

    Attributes:
        prompt: the token ids it was given.
        produced: those it wrote, its end-of-turn token included.
    """

    prompt: list[int]
    produced: list[int]


@dataclass
class Dialogue:
    """A conversation whose assistant messages are replaced one after the other by the target's own.

    An assistant message with a tool's result behind it is the call that the result belongs to: it stays as it is.
    A conversation that ends with a user's or a tool's message gets an answer to it.

    Attributes:
        id: the conversation's.
        messages: as given, with the answers so far in their places.
        turns: those answers.
        stopped: why the target's part ends before the conversation does.
    """

    id: str
    messages: Messages
    turns: list[Turn] = field(default_factory=list)
    stopped: Rejection | None = None

    def __post_init__(self) -> None:
        self.messages = [dict(message) for message in self.messages]
        roles = [message["role"] for message in self.messages]
        if roles[0] == "assistant":
            raise Rejection("assistant-first", "there is no prompt that its first answer could follow")
        if roles[-1] in {"user", "tool"}:
            roles.append("assistant")
            self.messages.append({"role": "assistant", "content": ""})
        answers = [place for place, role in enumerate(roles) if role == "assistant"]
        self._calls = [place for place in answers if roles[place + 1 : place + 2] == ["tool"]]
        self._places = [place for place in answers if place not in self._calls]
        if not self._places:
            raise Rejection("nothing-to-answer", f"it ends with a {roles[-1]} message and has no answer to replace")
        if not all(self.messages[place]["content"].strip() for place in self._calls):
            raise Rejection("empty-answer", "an assistant message before a tool's has no text")

    @property
    def waits(self) -> bool:
        """Whether there is a turn that the target has yet to write."""
        return self.stopped is None and len(self.turns) < len(self._places)

    @property
    def history(self) -> Messages:
        """The messages up to the next turn."""
        return self.messages[: self._places[len(self.turns)]]

    def answer(self, turn: Turn, text: str) -> None:
        """Put the next turn in its place."""
        self.messages[self._places[len(self.turns)]]["content"] = text
        self.turns.append(turn)

    def cut_off(self) -> None:
        """End it within the last answer, which the target had not finished; `prepare` is told so."""
        self.messages = self.messages[: self._places[len(self.turns) - 1] + 1]
        self.messages[-1][UNFINISHED] = True
        self._places = self._places[: len(self.turns)]

    def stop(self, why: Rejection) -> None:
        """End it before its next turn, which cannot be had."""
        self.stopped = why

    def result(self) -> Messages:
        """The messages up to where it was ended: none, if that was at its first turn."""
        if self.stopped is None:
            return self.messages
        return self.messages[: self._places[len(self.turns) - 1] + 1] if self.turns else []

    def calls(self) -> int:
        """How many assistant messages in `result()` are not the target's."""
        return sum(place < len(self.result()) for place in self._calls)
