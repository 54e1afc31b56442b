"""Masks of texts that their tokens spell byte by byte.

The tokens of a byte-level vocabulary are strings of bytes. Where those of a text's tokens, one after the other, are the
text's own, nothing was lost, and how many bytes come before each token says where it stands: neither needs the offsets,
which take the tokenizer a fifth of its time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from pipeline.prepare.masked import Masked
from pipeline.prepare.template import Rendered, Span

_NO_TEXT = b"\xff"
"""stands for a token that spells nothing: no byte of UTF-8"""


class _Bytes(dict[int, bytes]):
    """The bytes of each token, found out when it is met."""

    def __init__(self, backend: Any) -> None:
        from transformers.convert_slow_tokenizer import bytes_to_unicode

        self._backend = backend
        self._byte_of = {char: byte for byte, char in bytes_to_unicode().items()}
        super().__init__(
            {number: added.content.encode() for number, added in backend.get_added_tokens_decoder().items()}
        )

    def __missing__(self, number: int) -> bytes:
        token = self._backend.id_to_token(number)
        known = self._byte_of.keys() >= set(token)
        self[number] = bytes(self._byte_of[char] for char in token) if known else _NO_TEXT
        return self[number]


class Spelling:
    """What each token of a tokenizer spells."""

    def __init__(self, tokenizer: Any) -> None:
        """Make it.

        Args:
            tokenizer: one of transformers' fast tokenizers, of a byte-level vocabulary.
        """
        self._backend = tokenizer.backend_tokenizer
        self._bytes = _Bytes(self._backend)

    def masks(self, texts: Sequence[Rendered]) -> Iterator[Masked | None]:
        """Tokens and mask of each text; None where its tokens do not spell it, or a border lies inside one."""
        backend = self._backend
        # As transformers sets them before each call of its own.
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = False
        encodings = backend.encode_batch_fast([one.text for one in texts], add_special_tokens=False)
        for one, encoding in zip(texts, encodings, strict=True):
            yield self._mask(encoding.ids, one.text, one.answers)

    def _mask(self, ids: list[int], text: str, answers: Sequence[Span]) -> Masked | None:
        parts = list(map(self._bytes.__getitem__, ids))
        if b"".join(parts) != text.encode():
            return None
        ends = list(accumulate(map(len, parts)))
        loss_mask = [0] * len(ids)
        for start, stop in answers:
            # In bytes, and then in tokens: those before the answer, and those up to its end.
            before, through = (len(text[:place].encode()) for place in (start, stop))
            first, last = bisect_left(ends, before) + 1, bisect_left(ends, through) + 1
            if ends[first - 1] != before or ends[last - 1] != through:
                return None
            loss_mask[first:last] = [1] * (last - first)
        return Masked(ids, loss_mask, 0)


def spelling(tokenizer: Any) -> Spelling | None:
    """What a tokenizer's tokens spell, if its vocabulary is one of bytes."""
    from tokenizers.decoders import ByteLevel

    is_bytes = tokenizer.is_fast and isinstance(tokenizer.backend_tokenizer.decoder, ByteLevel)
    return Spelling(tokenizer) if is_bytes else None
