"""A unit: a fixed run of rows, answered together. What becomes of it depends on the rows and the settings alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.prepare.rejection import Rejection
from pipeline.prepare.sample import Rejected
from pipeline.prepare.source import Row
from pipeline.regenerate.dialogue import Dialogue, Turn
from pipeline.regenerate.generator import Answer, Generator, Request
from pipeline.regenerate.job import Job
from pipeline.regenerate.prompts import Prompts
from pipeline.regenerate.rows import rejected


@dataclass(frozen=True)
class Answered:
    """A row that became a conversation.

    Attributes:
        id: the conversation's.
        messages: with the target's answers.
        answers: how many those are.
        tokens: in them, end-of-turn tokens included.
        prompt_tokens: that the target was given for them.
        calls: assistant messages that are the input's.
        cut: why it ends before the input's conversation does; None if it does not.
        retokenized: answers that `prepare` reads as other tokens.
        refused: the reason for which `prepare` refuses it; None if it does not.
    """

    id: str
    messages: list[dict[str, str]]
    answers: int
    tokens: int
    prompt_tokens: int
    calls: int
    cut: str | None
    retokenized: int
    refused: str | None


Outcome = Answered | Rejected


class UnitWriter:
    """Has units answered."""

    def __init__(self, job: Job, prompts: Prompts, generator: Generator, note: Callable[[Answer], None]) -> None:
        """Put together what a unit needs.

        Args:
            job: the run.
            prompts: of the target.
            generator: the target.
            note: called with every answer.
        """
        self._job, self._prompts, self._generator, self._note = job, prompts, generator, note

    def answer(self, rows: Sequence[tuple[Row, Dialogue | Rejected]]) -> list[Outcome]:
        """All rows' outcomes, in their order.

        Raises:
            EngineError: the engine failed.
        """
        self._generator.begin_unit()
        waiting: dict[str, tuple[Dialogue, Request]] = {}
        for _, dialogue in rows:
            if isinstance(dialogue, Dialogue):
                self._ask(dialogue, waiting)
        while waiting:
            for answer in self._generator.advance():
                self._note(answer)
                dialogue, request = waiting.pop(answer.name)
                self._take(dialogue, request, answer)
                self._ask(dialogue, waiting)
        return [self._outcome(row, read) for row, read in rows]

    def _ask(self, dialogue: Dialogue, waiting: dict[str, tuple[Dialogue, Request]]) -> None:
        """Ask for a dialogue's next turn, if there is one that can be had."""
        if not dialogue.waits:
            return
        try:
            prompt = self._prompts.prompt(dialogue.history)
        except Rejection as why:
            dialogue.stop(why)
            return
        turn = len(dialogue.turns)
        room = min(self._job.settings.max_new_tokens, self._job.max_model_len - len(prompt))
        seed = seed_of(self._job.settings.seed, dialogue.id, turn)
        request = Request(f"{dialogue.id}#{turn}", prompt, seed, room)
        waiting[request.name] = (dialogue, request)
        self._generator.submit(request)

    def _take(self, dialogue: Dialogue, request: Request, answer: Answer) -> None:
        text = self._prompts.text(answer.produced, answer.finished)
        number = len(dialogue.turns) + 1
        if not text.strip():
            dialogue.stop(Rejection("empty-answer", f"the target ended answer {number} at once"))
        elif not answer.finished and self._job.settings.unfinished == "reject":
            cut = f"answer {number} does not end within {len(answer.produced):,} tokens: {text[:60]!r}"
            dialogue.stop(Rejection("unfinished", cut))
        else:
            dialogue.answer(Turn(request.prompt, answer.produced), text)
            if not answer.finished:
                dialogue.cut_off()

    def _outcome(self, row: Row, read: Dialogue | Rejected) -> Outcome:
        if isinstance(read, Rejected):
            return read
        if read.stopped and not read.turns:
            return rejected(row, read.id, read.stopped)
        retokenized, refused = 0, None
        try:
            retokenized = self._prompts.retokenized(read)
        except Rejection as why:
            refused = why.reason
        return Answered(
            id=read.id,
            messages=read.result(),
            answers=len(read.turns),
            tokens=sum(len(turn.produced) for turn in read.turns),
            prompt_tokens=sum(len(turn.prompt) for turn in read.turns),
            calls=read.calls(),
            cut=read.stopped.reason if read.stopped else None,
            retokenized=retokenized,
            refused=refused,
        )


def seed_of(seed: int, dialogue_id: str, turn: int) -> int:
    """The seed of one answer, 0 to 2^63 - 1, from the run's, the conversation's id and the turn, counted from 0."""
    digest = hashlib.sha256(json.dumps([seed, dialogue_id, turn]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def to_line(outcome: Outcome) -> bytes:
    """An outcome as a line of a unit's file."""
    kind = "answered" if isinstance(outcome, Answered) else "rejected"
    return json.dumps({kind: asdict(outcome)}, ensure_ascii=False).encode() + b"\n"


def from_line(line: bytes) -> Outcome:
    """What `to_line` wrote."""
    ((kind, fields),) = json.loads(line).items()
    made: Any = Answered if kind == "answered" else Rejected
    outcome: Outcome = made(**fields)
    return outcome
