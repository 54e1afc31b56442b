"""Messages to the tokens that the target reads, exactly as `prepare` will make them again, and its tokens to text."""

from __future__ import annotations

import hashlib
from typing import Any

from pipeline.prepare.conversation import UNFINISHED
from pipeline.prepare.mask import mask
from pipeline.prepare.rejection import Rejection
from pipeline.prepare.template import Messages, Template
from pipeline.regenerate.dialogue import Dialogue


class Prompts:
    """A target's tokenizer and chat template."""

    def __init__(self, tokenizer: Any, longest: int) -> None:
        """Read the template.

        Args:
            tokenizer: of the target.
            longest: most tokens of a prompt.

        Raises:
            SettingsError: the target has no chat template.
        """
        self._tokenizer = tokenizer
        self._template = Template(tokenizer)
        self._longest = longest

    @property
    def template_sha256(self) -> str:
        """Of the chat template's text, in hex."""
        return hashlib.sha256(self._template.source.encode()).hexdigest()

    def prompt(self, history: Messages) -> list[int]:
        """The tokens that ask for an answer to these messages.

        Raises:
            Rejection: `prepare` would refuse these messages, or there are too many tokens.
        """
        ids = self._ids(self._template.asking(history))
        if not ids:
            raise Rejection("empty-prompt", "the template renders no token for it")
        if len(ids) > self._longest:
            raise Rejection("prompt-too-long", f"{len(ids):,} tokens, and {self._longest:,} leave room for an answer")
        return ids

    def text(self, produced: list[int], finished: bool) -> str:
        """An answer's text: all of its tokens but the one that ended it, special ones too."""
        kept = produced[:-1] if finished else produced
        return str(self._tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def end_of_turn(self) -> int | None:
        """The token that ends an answer in the chat template; None if it refuses the plainest of conversations."""
        plain = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
        try:
            masked = mask(self._tokenizer, self._template.render(plain))
        except Rejection:
            return None
        trained = [token for token, one in zip(masked.input_ids, masked.loss_mask, strict=True) if one]
        return trained[-1] if trained else None

    def retokenized(self, dialogue: Dialogue) -> int:
        """How many answers `prepare` reads as other tokens than the target was given and wrote.

        Raises:
            Rejection: `prepare` refuses the conversation.
        """
        messages = dialogue.result()
        whole = mask(self._tokenizer, self._template.render(messages, bool(messages[-1].get(UNFINISHED))))
        differing = 0
        for turn in dialogue.turns:
            there = turn.prompt + turn.produced
            trained = whole.loss_mask[len(turn.prompt) : len(there)]
            differing += whole.input_ids[: len(there)] != there or not all(trained)
        return differing

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
