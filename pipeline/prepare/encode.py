"""A conversation to the samples it becomes: token ids and loss masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.prepare.conversation import Conversation
from pipeline.prepare.mask import mask
from pipeline.prepare.rejection import Rejection
from pipeline.prepare.template import Template


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run may choose about samples."""

    max_seq_len: int = 2048
    """longest sample, in tokens"""


@dataclass(frozen=True)
class Encoded:
    """Tokens of one sample.

    Attributes:
        input_ids: token ids.
        loss_mask: 0 or 1 for each of them; 1 where the target itself would have produced the token.
        full_length: how many tokens it had before it was cut.
        straddling: tokens that reach across an answer's border.
    """

    input_ids: list[int]
    loss_mask: list[int]
    full_length: int
    straddling: int


class Encoder:
    """Makes samples of conversations with one tokenizer and its chat template."""

    def __init__(self, tokenizer: Any, settings: Settings) -> None:
        self._tokenizer = tokenizer
        self._template = Template(tokenizer)
        self._settings = settings

    @property
    def template_source(self) -> str:
        """The chat template's text."""
        return self._template.source

    def encode(self, conversation: Conversation) -> list[Encoded]:
        """The samples of a conversation, at least one.

        Raises:
            Rejection: nothing of it can be trained on, or its mask is not certain.
        """
        masked = mask(self._tokenizer, self._template.render(conversation.messages, conversation.unfinished))
        limit = self._settings.max_seq_len
        if not any(masked.loss_mask):
            raise Rejection("no-trained-token", "none of its tokens lies inside an answer")
        if not any(masked.loss_mask[:limit]):
            first = masked.loss_mask.index(1) + 1
            raise Rejection("answer-beyond-limit", f"its first trained token is number {first}, the limit is {limit}")
        length = len(masked.input_ids)
        return [Encoded(masked.input_ids[:limit], masked.loss_mask[:limit], length, masked.straddling)]
