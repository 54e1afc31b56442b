"""A conversation to the samples it becomes: token ids and loss masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.prepare.conversation import Conversation
from pipeline.prepare.cut import windows
from pipeline.prepare.literal import Hidden
from pipeline.prepare.lost import lost_characters
from pipeline.prepare.mask import LOST, Masked, masks
from pipeline.prepare.rejection import Rejection
from pipeline.prepare.settings import Settings
from pipeline.prepare.spelling import spelling
from pipeline.prepare.template import Rendered, Template

__all__ = ["Encoded", "Encoder", "Settings"]


@dataclass(frozen=True)
class Encoded:
    """Tokens of one sample.

    Attributes:
        input_ids: token ids.
        loss_mask: 0 or 1 for each of them; 1 where the target itself would have produced the token.
        full_length: how many tokens it had before it was cut.
        straddling: tokens that reach across an answer's border.
        rewritten: whether it was made for an answer that the template renders otherwise once later turns are there.
    """

    input_ids: list[int]
    loss_mask: list[int]
    full_length: int
    straddling: int
    rewritten: bool = False


class Encoder:
    """Makes samples of conversations with one tokenizer and its chat template."""

    def __init__(self, tokenizer: Any, settings: Settings) -> None:
        self._tokenizer = tokenizer
        self._template = Template(tokenizer, settings.day)
        self._settings = settings
        self._lost = lost_characters(tokenizer)
        self._spelling = spelling(tokenizer)

    @property
    def template_source(self) -> str:
        """The chat template's text."""
        return self._template.source

    def encode(self, conversation: Conversation) -> list[Encoded]:
        """The samples of a conversation, at least one.

        Raises:
            Rejection: nothing of it can be trained on, or its mask is not certain.
        """
        [found] = self.encode_many([conversation])
        if isinstance(found, Rejection):
            raise found
        return found

    def encode_many(self, conversations: Sequence[Conversation]) -> list[list[Encoded] | Rejection]:
        """The same for several, each by itself, with one call of the tokenizer for all of them."""
        rendered = [self._rendered(conversation) for conversation in conversations]
        texts = [text for one in rendered if not isinstance(one, Rejection) for text in one]
        masked = iter(masks(self._tokenizer, texts, self._spelling, self._lost))
        found: list[list[Encoded] | Rejection] = []
        for one in rendered:
            if isinstance(one, Rejection):
                found.append(one)
                continue
            try:
                found.append(self._samples([(text, next(masked)) for text in one]))
            except Rejection as why:
                found.append(why)
        return found

    def _rendered(self, conversation: Conversation) -> list[Rendered] | Rejection:
        messages, tools = conversation.messages, conversation.tools
        hidden = None
        try:
            if self._settings.special_tokens == "reject":
                self._template.refuse_special_tokens(messages)
            elif self._settings.special_tokens == "literal":
                hidden = Hidden(self._template.special, self._template.first)
                messages, tools = hidden.hide(messages), hidden.hide(tools)
            texts = self._template.texts(
                messages, tools, unfinished=conversation.unfinished, hidden=hidden if hidden else None
            )
        except Rejection as why:
            return why
        if self._settings.train_on == "last":
            *_, last = sorted(texts, key=lambda text: text.answers[-1][1])
            return [Rendered(last.text, last.answers[-1:], last.hidden, last.rewritten)]
        return texts

    def _samples(self, masked: Sequence[tuple[Rendered, Masked | Rejection]]) -> list[Encoded]:
        samples: list[Encoded] = []
        refused: list[Rejection] = []
        for rendered, one in masked:
            try:
                if isinstance(one, Rejection):
                    raise one
                samples += self._cut(one, rewritten=rendered.rewritten)
            except Rejection as why:
                refused.append(why)
        if lost := [why for why in refused if why.reason == LOST]:
            raise lost[0]
        if not samples:
            raise refused[0]
        return samples

    def _cut(self, masked: Masked, *, rewritten: bool) -> list[Encoded]:
        settings, length = self._settings, len(masked.input_ids)
        if length <= settings.max_seq_len and sum(masked.loss_mask) >= settings.min_trained_tokens:
            return [Encoded(masked.input_ids, masked.loss_mask, length, masked.straddling, rewritten)]
        found: list[Encoded] = []
        for window in windows(masked.loss_mask, settings.max_seq_len, settings.truncate):
            here = slice(window.start, window.stop)
            trained = masked.loss_mask[here]
            for at in range(max(0, window.trains_from - window.start)):
                trained[at] = 0
            if sum(trained) >= settings.min_trained_tokens:
                # Straddling tokens are those of the whole text: it is counted with its first sample.
                straddling = 0 if found else masked.straddling
                found.append(Encoded(masked.input_ids[here], trained, length, straddling, rewritten))
        if not found:
            detail = f"no sample of it has {settings.min_trained_tokens} trained tokens"
            raise Rejection("too-few-trained-tokens", detail)
        return found
