"""A target's chat template as a function from messages to text, compiled once."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.errors import SettingsError
from pipeline.prepare.rejection import Rejection

if TYPE_CHECKING:
    from jinja2 import Template

    from pipeline.prepare.fold import Folding

GENERATION_TAG = re.compile(r"\{%-?\s*generation\s*-?%\}")
Messages = list[dict[str, Any]]
Tools = list[dict[str, Any]] | None
Span = tuple[int, int]

NOT_THINKING = ({"enable_thinking": False}, {"thinking": False})
"""how templates are told that an answer has no thought: Qwen3's and GLM's variable, DeepSeek-V3.1's and Kimi's"""
_ROLES = ({"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}, {"role": "user", "content": "?"})


class Talk(Protocol):
    """The texts of a conversation's first messages."""

    def text(self, count: int) -> str:
        """That of so many messages, at least one."""

    def prompts(self, count: int) -> list[str]:
        """The texts that may have asked for the answer to so many messages, at least one: see `Rendering.prompts`."""


class Rendering:
    """The chat template of a loaded tokenizer."""

    def __init__(self, tokenizer: Any, today: date) -> None:
        """Compile it.

        Args:
            tokenizer: a transformers tokenizer.
            today: the day that a template which writes the date is told.

        Raises:
            SettingsError: there is no template.
        """
        try:
            self.source: str = tokenizer.get_chat_template()
        except ValueError as error:
            raise SettingsError(f"{tokenizer.name_or_path} has no chat template: a target needs one") from error
        self.marked = GENERATION_TAG.search(self.source) is not None
        moment = datetime(today.year, today.month, today.day)
        self._variables = {**tokenizer.special_tokens_map, "strftime_now": moment.strftime}
        added = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
        specials = sorted(added | set(tokenizer.all_special_tokens), key=len, reverse=True)
        self.special = re.compile("|".join(map(re.escape, specials)) or r"(?!)")
        self.first = "".join({special[0] for special in specials})
        self._template: Template | None = None
        self._folding: Folding | None = None
        self.generation_prompt = self._find_generation_prompt()
        self.closing = self._find_closing()
        self._folding = self._find_folding()
        ends = _end_tokens(tokenizer)
        self.next_ends = {role: end for role in ("user", "tool") if (end := self._find_next(role)) in ends}
        """by the role that follows: the token that begins its turn, where the target ends its own by producing that"""

    def text(self, messages: Messages, tools: Tools = None, *, ask: bool = False, **variables: Any) -> str:
        """Messages as the target reads them.

        Args:
            messages: OpenAI's.
            tools: functions that the target is shown.
            ask: end with what asks for an answer.
            variables: more of the template's.

        Raises:
            Rejection: the template refuses them.
        """
        return _rendered(self._compiled(), messages, tools, ask, **variables)

    def talk(self, messages: Messages, tools: Tools) -> Talk:
        """What gives the texts of the first messages, of as many as may be asked for.

        Raises:
            Rejection: the template refuses all of them together.
        """
        fold = None
        if self._folding:
            fold = self._folding(lambda template: _rendered(template, messages, tools), len(messages))
        return fold or _Each(self, messages, tools)

    def marks(self, messages: Messages, tools: Tools = None) -> tuple[str, list[Span]]:
        """The same text, and the stretches between `{% generation %}` and `{% endgeneration %}` in it."""
        from transformers.utils.chat_template_utils import render_jinja_template

        render: Any = render_jinja_template
        try:
            texts, marks = render(
                [messages],
                tools=tools,
                chat_template=self.source,
                return_assistant_tokens_mask=True,
                **self._variables,
            )
        except Exception as error:
            raise _refused(error) from error
        return texts[0], [tuple(mark) for mark in marks[0]]

    def prompts(self, messages: Messages, tools: Tools) -> list[str]:
        """The texts that may have asked for the answer to these messages: as usual, and without a thought."""
        found = [self.text(messages, tools, ask=True)]
        if "thinking" in self.source:
            found += [self.text(messages, tools, ask=True, **variables) for variables in NOT_THINKING]
        return found

    def _compiled(self) -> Template:
        if self._template is None:
            try:
                self._template = _compile(self.source, self._variables)
            except Exception as error:
                raise _refused(error) from error
        return self._template

    def _find_folding(self) -> Folding | None:
        from pipeline.prepare.fold import folding

        # A template that knows of thoughts may be asked for an answer without one, and is then another.
        if "thinking" in self.source:
            return None
        question = [dict(_ROLES[0])]
        try:
            return folding(self._compiled(), self.source, lambda template: _rendered(template, question, ask=True))
        except Rejection:
            return None

    def _find_generation_prompt(self) -> str:
        """What the template adds to ask for an answer, such as ChatML's assistant header; empty if it is no suffix."""
        question = [dict(_ROLES[0])]
        try:
            without, asking = self.text(question), self.text(question, ask=True)
        except Rejection:
            return ""
        return asking[len(without) :] if asking.startswith(without) else ""

    def _find_closing(self) -> str:
        """What the template puts behind the last turn and behind no other, such as Phi-3's end of text."""
        talk = [dict(message) for message in _ROLES]
        try:
            short, long = (self._pieces(self.text(talk[:count])) for count in (2, 3))
        except Rejection:
            return ""
        same = next((at for at, pair in enumerate(zip(short, long, strict=False)) if pair[0] != pair[1]), len(short))
        before = "".join(short[:same]).rstrip()
        rest = "".join(short[same:])
        # Only behind a turn that has its own end: a last turn that ends otherwise than the others keeps its end.
        ended = any(before.endswith(found.group()) for found in self.special.finditer(before))
        return rest if ended and not self.special.sub("", rest).strip() else ""

    def _find_next(self, role: str) -> str | None:
        """The special token that a message of this role begins with, right behind an answer."""
        talk = [dict(_ROLES[0]), {"role": "assistant", "content": "!"}]
        try:
            before, after = self.text(talk), self.text([*talk, {"role": role, "content": "?"}])
        except Rejection:
            return None
        found = self.special.match(after, len(before)) if after.startswith(before) else None
        return found.group() if found else None

    def _pieces(self, text: str) -> list[str]:
        pieces, at = [], 0
        for found in self.special.finditer(text):
            pieces += [text[at : found.start()], found.group()]
            at = found.end()
        return [*pieces, text[at:]]


def _end_tokens(tokenizer: Any) -> set[str]:
    """The tokens at which the target's own generation settings stop; none where there are no such settings."""
    try:
        settings = json.loads((Path(tokenizer.name_or_path) / "generation_config.json").read_bytes())
        given = settings.get("eos_token_id")
    except (OSError, ValueError, AttributeError):
        return set()
    ids = given if isinstance(given, list) else [given]
    return {tokenizer.convert_ids_to_tokens(number) for number in ids if isinstance(number, int)}


class _Each:
    """The texts of a conversation's first messages, each rendered by itself."""

    def __init__(self, rendering: Rendering, messages: Messages, tools: Tools) -> None:
        self._rendering, self._messages, self._tools = rendering, messages, tools
        self._whole = rendering.text(messages, tools)

    def text(self, count: int) -> str:
        if count == len(self._messages):
            return self._whole
        return self._rendering.text(self._messages[:count], self._tools)

    def prompts(self, count: int) -> list[str]:
        return self._rendering.prompts(self._messages[:count], self._tools)


def _rendered(template: Template, messages: Messages, tools: Tools = None, ask: bool = False, **variables: Any) -> str:
    try:
        return template.render(messages=messages, tools=tools, add_generation_prompt=ask, **variables)
    # A template is a program out of the target's folder: whatever it raises is about this conversation.
    except Exception as error:
        raise _refused(error) from error


def _refused(error: Exception) -> Rejection:
    return Rejection("template-refused", str(error) or type(error).__name__)


def _compile(source: str, variables: Mapping[str, Any]) -> Template:
    """As transformers compiles it: its sandbox, its extensions, its filters."""
    from transformers.utils.chat_template_utils import _compile_jinja_template

    template: Template = _compile_jinja_template(source)
    # What is the same in every text goes in once; a plain dict, as every rendering copies it.
    template.globals = {**template.globals, "documents": None, **variables}
    return template
