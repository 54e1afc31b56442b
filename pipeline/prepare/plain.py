"""Rows that no chat template has a part in: plain texts and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.prepare.encode import Encoded, Settings
from pipeline.prepare.formats.text import Text
from pipeline.prepare.formats.tokens import Tokens
from pipeline.prepare.rejection import Rejection


class PlainEncoder:
    """Makes samples of texts and tokens.

    In a text every token is trained, but not those that the tokenizer puts in front of it: nothing says that the target
    produces them. A text that imitates special tokens does not become them.
    """

    def __init__(self, tokenizer: Any, settings: Settings) -> None:
        self._tokenizer = tokenizer
        self._limit = settings.max_seq_len
        self._truncate = settings.truncate
        self._vocabulary = len(tokenizer)
        self._in_front = self._added_in_front()

    def texts(self, texts: Sequence[Text]) -> list[list[Encoded] | Rejection]:
        """The samples of each text, or why it has none."""
        if not texts:
            return []
        encoded = self._tokenizer([one.text for one in texts], split_special_tokens=True, verbose=False)
        return [self._text(ids) for ids in encoded["input_ids"]]

    def tokens(self, tokens: Tokens) -> list[Encoded] | Rejection:
        """The samples of a row of tokens, or why it has none."""
        if max(tokens.input_ids) >= self._vocabulary:
            detail = f"token id {max(tokens.input_ids)} is out of the vocabulary of {self._vocabulary}"
            return Rejection("id-out-of-vocabulary", detail)
        return self._cut(tokens.input_ids, tokens.loss_mask)

    def _text(self, ids: list[int]) -> list[Encoded] | Rejection:
        front = len(self._in_front) if ids[: len(self._in_front)] == self._in_front else 0
        return self._cut(ids, [0] * front + [1] * (len(ids) - front))

    def _cut(self, ids: list[int], mask: list[int]) -> list[Encoded] | Rejection:
        length, limit = len(ids), self._limit
        if not any(mask):
            return Rejection("no-trained-token", "its mask trains none of its tokens")
        if length <= limit:
            return [Encoded(ids, mask, length, 0)]
        if self._truncate == "reject":
            return Rejection("too-long", f"{length:,} tokens, the limit is {limit:,}")
        if self._truncate == "split-turns":
            starts = range(0, length, limit)
            pieces = [
                Encoded(ids[at : at + limit], mask[at : at + limit], len(ids[at : at + limit]), 0) for at in starts
            ]
            return [piece for piece in pieces if any(piece.loss_mask)]
        kept = slice(length - limit, None) if self._truncate == "left" else slice(limit)
        if not any(mask[kept]):
            return Rejection("answer-beyond-limit", f"none of its {limit:,} tokens within the limit is trained")
        return [Encoded(ids[kept], mask[kept], length, 0)]

    def _added_in_front(self) -> list[int]:
        """What the tokenizer puts in front of a text, such as a token that begins it."""
        whole = self._tokenizer("a")["input_ids"]
        bare = self._tokenizer("a", add_special_tokens=False)["input_ids"]
        for front in range(len(whole) - len(bare) + 1):
            if whole[front : front + len(bare)] == bare:
                return list(whole[:front])
        return []
