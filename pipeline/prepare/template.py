"""A conversation to the texts that a target reads, and where in them its own answers stand.

An answer is what follows the text that asked for it, up to its end-of-turn token: the conversation up to the answer is
rendered with the generation prompt, and with the answer; the one must begin with the other. A template may render an
answer otherwise once later turns are there (without its thought, with another end). Then the later text is not what the
target was given and wrote, and the answer is trained in a text of its own that ends with it. Where the template marks
answers itself (`{% generation %}`), its marks must say the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from pipeline.prepare.literal import Hidden
from pipeline.prepare.rejection import Rejection
from pipeline.prepare.rendering import Messages, Rendering, Span, Tools
from pipeline.prepare.settings import DAY

__all__ = ["Messages", "Rendered", "Span", "Template"]
_THOUGHT = re.compile(r"</?think(?:ing)?>")


@dataclass(frozen=True)
class Rendered:
    """A text as the target reads it.

    Attributes:
        text: the whole of it.
        answers: (start, end) in characters of each answer, its end-of-turn token included; in order, apart.
        hidden: strings in it that look like special tokens and are none.
        rewritten: whether it ends with an answer that the template renders otherwise once more turns are there.
    """

    text: str
    answers: list[Span]
    hidden: Hidden | None = None
    rewritten: bool = False


@dataclass
class _Text:
    """A text that answers are trained in."""

    messages: Messages
    text: str
    answers: list[Span] = field(default_factory=list)


class Template:
    """The chat template of a loaded tokenizer."""

    def __init__(self, tokenizer: Any, day: date = DAY) -> None:
        self._rendering = Rendering(tokenizer, day)

    @property
    def source(self) -> str:
        """The template's text."""
        return self._rendering.source

    @property
    def special(self) -> re.Pattern[str]:
        """Finds special tokens in text."""
        return self._rendering.special

    @property
    def first(self) -> str:
        """Their first characters."""
        return self._rendering.first

    def render(self, messages: Messages, unfinished: bool = False) -> Rendered:
        """Render a conversation whose answers can all be trained in one text.

        Args:
            messages: OpenAI's.
            unfinished: the last one is an answer that was cut off; the text then ends with it, and no end-of-turn
                token, which the target did not produce, follows.

        Raises:
            Rejection: the template refuses the conversation or loses text, the answers cannot be placed for certain,
                or not in one text, or a message has what looks like a special token.
        """
        self.refuse_special_tokens(messages)
        texts = self.texts(messages, unfinished=unfinished)
        if len(texts) > 1 or texts[0].rewritten:
            raise Rejection("template-rewrites-history", "its answers cannot all be trained in one text")
        return texts[0]

    def texts(
        self, messages: Messages, tools: Tools = None, *, unfinished: bool = False, hidden: Hidden | None = None
    ) -> list[Rendered]:
        """The texts of a conversation: every answer is trained in exactly one of them.

        Args:
            messages: OpenAI's.
            tools: functions that the target is shown.
            unfinished: see `render`.
            hidden: what stands for strings in these messages, see `literal`.

        Returns:
            Texts that end with an answer, in the order of these, and last the whole conversation, if any can be
            trained in it.

        Raises:
            Rejection: the template refuses the conversation or loses text, or an answer cannot be placed for certain.
        """
        talk = self._rendering.talk(messages, tools)
        whole = talk.text(len(messages))
        self._check_kept(messages, whole)
        found = [_Text(messages, whole)]
        turns = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
        # The last one first: its text holds all the others that are still as the target wrote them.
        for number in reversed(turns):
            up_to, last = messages[: number + 1], number == len(messages) - 1
            following = "user" if last else messages[number + 1]["role"]
            prompts = talk.prompts(number) if number else self._first_prompt(tools)
            text, answer = self._turn(up_to, prompts, talk.text(number + 1), following, cut_off=unfinished and last)
            if last and (unfinished or not whole.startswith(text)):
                found = [_Text(messages, text)]
            home = next((one for one in found if one.text.startswith(text)), None)
            if home is None:
                found.append(home := _Text(up_to, text))
            home.answers.insert(0, answer)
        used = sorted((one for one in found if one.answers), key=lambda one: len(one.messages))
        if not used:
            raise Rejection("no-assistant-turn", "there is nothing to train on without an assistant message")
        if self._rendering.marked:
            for one in used:
                self._compare(one, tools)
        return [Rendered(one.text, one.answers, hidden, one is not found[0]) for one in used]

    def asking(self, history: Messages) -> str:
        """The text that asks for an answer, refused where `render` would refuse these messages with any answer.

        Raises:
            Rejection: see `render`.
        """
        if any(message["role"] == "assistant" for message in history):
            self.render(history)
        self.refuse_special_tokens(history)
        text = self._rendering.text(history, ask=True)
        self._check_kept(history, text)
        return text

    def refuse_special_tokens(self, messages: Messages) -> None:
        """Refuse what looks like special tokens in messages.

        Raises:
            Rejection: there is one.
        """
        for number, message in enumerate(messages, 1):
            for text in strings(message):
                if found := self.special.search(text):
                    raise Rejection("special-token-in-text", f"message {number} contains {found.group()}")

    def _turn(
        self, messages: Messages, prompts: list[str], through: str, following: str, *, cut_off: bool
    ) -> tuple[str, Span]:
        """The text up to the end of the last message's turn, and what of it the target wrote.

        Args:
            messages: the last one is an answer.
            prompts: the texts that may have asked for it.
            through: the text of these messages.
            following: the role of the message behind it.
            cut_off: it has no end.
        """
        number = len(messages)
        through = through.removesuffix(self._rendering.closing or "\0")
        # Of several prompts the longest: an empty thought that it holds was given, and not written.
        fitting = [prompt for prompt in prompts if through.startswith(prompt)]
        if not fitting:
            if number == 1:
                raise Rejection("assistant-first", "the template renders no prompt that its first answer could follow")
            detail = f"message {number} is not rendered behind the text that asks for it"
            raise Rejection("answer-not-behind-prompt", detail)
        start = len(max(fitting, key=len))
        if cut_off:
            end = _end_of_words(through, start, str(messages[-1].get("content") or ""))
        else:
            found = self._ends(through, start)
            if found is None and (token := self._rendering.next_ends.get(following)):
                # The target ends its turn with the token that the next one begins with.
                through += token
                found = len(through)
            if found is None:
                detail = f"the template puts no special token after {through[start:][:40]!r}"
                raise Rejection("no-end-of-turn", detail)
            end = found
        self._check_written(messages[-1], through[start:end], number)
        return through[:end], (start, end)

    def _first_prompt(self, tools: Tools) -> list[str]:
        try:
            return self._rendering.prompts([], tools)
        except Rejection as why:
            raise Rejection("assistant-first", "the template renders no prompt without messages") from why

    def _ends(self, text: str, start: int) -> int | None:
        """Where the turn's end-of-turn token ends: the last special token, with only white space after it."""
        *_, last = [None, *self.special.finditer(text, start)]
        return last.end() if last and not text[last.end() :].strip() else None

    def _compare(self, one: _Text, tools: Tools) -> None:
        """Refuse answers that the template marks otherwise than its rendering shows them."""
        text, marks = self._rendering.marks(one.messages, tools)
        header = self._rendering.generation_prompt
        marked = {}
        for start, stop in marks:
            # Some authors mark the header too, which is given to the target and not produced by it.
            begin = start + (len(header) if header and text.startswith(header, start) else 0)
            marked[begin] = self._without_end(text[begin:stop])
        for start, end in one.answers:
            if text[:start] != one.text[:start] or marked.get(start) != self._without_end(one.text[start:end]):
                detail = f"{{% generation %}} does not mark what follows the prompt: {one.text[start:end][:40]!r}"
                raise Rejection("mask-methods-disagree", detail)

    def _without_end(self, written: str) -> str:
        """What authors mark in any case: without special tokens and white space at the end."""
        end = len(written.rstrip())
        for found in reversed(list(self.special.finditer(written))):
            if found.end() == end:
                end = len(written[: found.start()].rstrip())
        return written[:end]

    def _check_kept(self, messages: Messages, text: str) -> None:
        """Refuse a template that leaves out or changes what is said; thoughts of earlier turns it may leave out."""
        for number, message in enumerate(messages, 1):
            content = str(message.get("content") or "")
            if content.strip() in text:
                continue
            if message["role"] != "assistant" or _THOUGHT.split(content)[-1].strip() not in text:
                raise Rejection("template-changes-text", f"message {number} is not in the rendered text as given")

    def _check_written(self, message: dict[str, Any], written: str, number: int) -> None:
        """Refuse a turn without something that the target wrote in it."""
        parts = _THOUGHT.split(str(message.get("content") or ""))
        parts.append(str(message.get("reasoning_content") or ""))
        parts += [str(call["function"]["name"]) for call in message.get("tool_calls") or []]
        if missing := [part.strip() for part in parts if part.strip() not in written]:
            raise Rejection("template-changes-text", f"the turn of message {number} lacks {missing[0][:40]!r}")


def _end_of_words(text: str, start: int, answer: str) -> int:
    """Where an answer's own words end."""
    # Some templates trim an answer.
    words = answer if answer in text[start:] else answer.strip()
    return text.rindex(words, start) + len(words)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)
