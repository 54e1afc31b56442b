"""A target's chat template: a conversation to text, and where in that text the target's own answers stand.

The answers' places come from the template itself where its author marked them (`{% generation %}`). Otherwise they are
found by rendering: what the template adds to a prompt when the answer is given is the answer. For that the
rendering up to a turn must be a prefix of the whole. A template that renders earlier turns differently once later ones
are there fails this, and the conversation is rejected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pipeline.errors import SettingsError
from pipeline.prepare.rejection import Rejection

GENERATION_TAG = re.compile(r"\{%-?\s*generation\s*-?%\}")
Messages = list[dict[str, Any]]
Span = tuple[int, int]


@dataclass(frozen=True)
class Rendered:
    """A conversation as the target reads it.

    Attributes:
        text: the whole of it.
        answers: (start, end) in characters of each answer, its end-of-turn token included; in order, apart.
    """

    text: str
    answers: list[Span]


class Template:
    """The chat template of a loaded tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        try:
            self.source: str = tokenizer.get_chat_template()
        except ValueError as error:
            raise SettingsError(f"{tokenizer.name_or_path} has no chat template: a target needs one") from error
        self._variables = dict(tokenizer.special_tokens_map)
        added = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
        specials = sorted(added | set(tokenizer.all_special_tokens), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, specials)) or r"(?!)")
        self._generation_prompt = self._find_generation_prompt()

    def render(self, messages: Messages, unfinished: bool = False) -> Rendered:
        """Render a conversation and find the answers in it.

        Args:
            messages: with `role` and `content`.
            unfinished: the last one is an answer that was cut off; the text then ends with it, and no end-of-turn
                token, which the target did not produce, follows.

        Returns:
            The text and the answers' places.

        Raises:
            Rejection: the template refuses the conversation, loses text, or the answers cannot be placed for certain.
        """
        self._refuse_special_tokens(messages)
        marked = GENERATION_TAG.search(self.source)
        rendered = self._by_marks(messages) if marked else self._by_prefixes(messages)
        for number, message in enumerate(messages, 1):
            if message["content"].strip() not in rendered.text:
                raise Rejection("template-changes-text", f"message {number} is not in the rendered text as given")
        return _cut_off(rendered, messages[-1]["content"]) if unfinished else rendered

    def _by_prefixes(self, messages: Messages) -> Rendered:
        text = self._text(messages)
        answers = []
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            prompt = self._text(messages[:number], add_generation_prompt=True)
            through = self._text(messages[: number + 1])
            if not (text.startswith(through) and through.startswith(prompt)):
                if number == 0:
                    raise Rejection(
                        "assistant-first", "the template renders no prompt that its first answer could follow"
                    )
                detail = f"rendered only up to message {number + 1}, the text is no prefix of the whole"
                raise Rejection("template-rewrites-history", detail)
            answers.append((len(prompt), self._end_of_turn(text, len(prompt), len(through))))
        return Rendered(text, answers)

    def _by_marks(self, messages: Messages) -> Rendered:
        rendering, marks = self._jinja([messages], return_assistant_tokens_mask=True)
        text = rendering[0]
        answers = []
        for start, stop in marks[0]:
            # Some authors mark the header too, which is given to the target and not produced by it.
            header = len(self._generation_prompt) if text.startswith(self._generation_prompt, start) else 0
            answers.append((start + header, self._end_of_turn(text, start + header, stop, may_follow=True)))
        if not answers:
            raise Rejection("no-trained-token", "the template marks no text of it with {% generation %}")
        return Rendered(text, answers)

    def _end_of_turn(self, text: str, start: int, stop: int, may_follow: bool = False) -> int:
        """Where the turn's end-of-turn token ends: the last special token, with only white space after it.

        With `may_follow` it may stand right behind the turn, unless it is the one that opens the next turn.
        """
        *_, last = [None, *self._special.finditer(text, start, stop)]
        if last and not text[last.end() : stop].strip():
            return last.end()
        behind = self._special.match(text, stop) if may_follow else None
        if behind and not self._generation_prompt.startswith(behind.group()):
            return behind.end()
        raise Rejection("no-end-of-turn", f"the template puts no special token after {text[start:stop][:40]!r}")

    def _refuse_special_tokens(self, messages: Messages) -> None:
        """Inside a rendered text they cannot be told from the template's own, for the tokenizer as for the target."""
        for number, message in enumerate(messages, 1):
            if found := self._special.search(message["content"]):
                raise Rejection("special-token-in-text", f"message {number} contains {found.group()}")

    def _find_generation_prompt(self) -> str:
        """What the template adds to ask for an answer, such as ChatML's assistant header; empty if it is no suffix."""
        question = [{"role": "user", "content": "?"}]
        try:
            without, asking = self._text(question), self._text(question, add_generation_prompt=True)
        except Rejection:
            return ""
        return asking[len(without) :] if asking.startswith(without) else ""

    def _text(self, messages: Messages, add_generation_prompt: bool = False) -> str:
        return self._jinja([messages], add_generation_prompt=add_generation_prompt)[0][0]

    def _jinja(self, conversations: list[Messages], **options: bool) -> tuple[list[str], list[list[Span]]]:
        from transformers.utils.chat_template_utils import render_jinja_template

        render: Any = render_jinja_template
        try:
            texts, marks = render(conversations, chat_template=self.source, **options, **self._variables)
        # A template is a program out of the target's folder: whatever it raises is about this conversation.
        except Exception as error:
            raise Rejection("template-refused", str(error) or type(error).__name__) from error
        return texts, marks


def _cut_off(rendered: Rendered, answer: str) -> Rendered:
    """The text up to the end of its last answer's own words."""
    *earlier, (start, end) = rendered.answers
    # Some templates trim an answer.
    words = answer if answer in rendered.text[start:end] else answer.strip()
    end = rendered.text.index(words, start) + len(words)
    return Rendered(rendered.text[:end], [*earlier, (start, end)])
