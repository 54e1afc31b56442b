r"""Tokens as text that can be looked at: runs of trained and untrained tokens, each in pieces of whole characters.

In: token ids and their loss mask. Out: runs whose pieces say which tokens they are. Text is never lost: a run that ends
inside a character ends in the bytes that it has of it, as \xNN.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

# Joiners within words and emoji; every other character of no shape of its own is named.
JOINERS = {"\u200c", "\u200d"}
NAMED = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@dataclass(frozen=True)
class Piece:
    """The fewest tokens that are whole characters together."""

    text: str
    """as decoded; bytes that are no character are \\xNN"""
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """Neighbouring tokens that are all trained on, or none of them."""

    trained: bool
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """Of all its tokens."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def ids(self) -> tuple[int, ...]:
        """Of all its tokens."""
        return tuple(token for piece in self.pieces for token in piece.ids)


class Speller:
    """Gives the runs of samples of one tokenizer.

    Args:
        tokenizer: the target's, of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._bytes_of = _bytes_of(tokenizer)

    def runs(self, input_ids: Sequence[int], loss_mask: Sequence[int]) -> Iterator[Run]:
        """The runs of a sample, in order.

        Args:
            input_ids: the sample's tokens.
            loss_mask: 1 where a token is trained on, as long.
        """
        both = zip(input_ids, loss_mask, strict=True)
        for trained, tokens in groupby(both, key=lambda one: bool(one[1])):
            yield Run(trained, tuple(self._pieces([token for token, _ in tokens])))

    def _pieces(self, ids: list[int]) -> Iterator[Piece]:
        if self._bytes_of is None:
            # What bytes such a tokenizer's tokens are is not known: only together are they sure to be characters.
            yield Piece(self._tokenizer.decode(ids, skip_special_tokens=False), tuple(ids))
            return
        pending = b""
        held: list[int] = []
        for token in ids:
            pending, held = pending + self._bytes_of(token), [*held, token]
            if not _ends_inside_a_character(pending):
                yield Piece(pending.decode("utf-8", "backslashreplace"), tuple(held))
                pending, held = b"", []
        if held:
            yield Piece(pending.decode("utf-8", "backslashreplace"), tuple(held))


def visible(text: str) -> str:
    """Text in which nothing acts: control and format characters are named, line ends shown and kept."""
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character == "\n":
        return "⏎\n"
    if character in JOINERS or unicodedata.category(character) not in NAMED:
        return character
    return character.encode("unicode_escape").decode()


def _ends_inside_a_character(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return False


def _bytes_of(tokenizer: Any) -> Callable[[int], bytes] | None:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = json.dumps(json.loads(backend.to_str()).get("decoder")) if backend else ""
    if '"ByteLevel"' in decoder:
        spell = _byte_level
    elif '"ByteFallback"' in decoder:
        spell = _byte_fallback
    else:
        return None
    added = {number: str(token) for number, token in tokenizer.added_tokens_decoder.items()}

    @cache
    def bytes_of(token: int) -> bytes:
        if token in added:
            return added[token].encode()
        name = tokenizer.convert_ids_to_tokens(token)
        return f"<no token {token}>".encode() if name is None else spell(name)

    return bytes_of


def _byte_level(name: str) -> bytes:
    alphabet = _alphabet()
    return b"".join(alphabet.get(character) or character.encode() for character in name)


def _byte_fallback(name: str) -> bytes:
    if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
        return bytes([int(name[3:5], 16)])
    return name.replace("▁", " ").encode()


@cache
def _alphabet() -> dict[str, bytes]:
    """How byte-level vocabularies write bytes: visible ones of Latin-1 as themselves, the others from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in plain]
    written = {chr(byte): bytes([byte]) for byte in plain}
    return written | {chr(0x100 + place): bytes([byte]) for place, byte in enumerate(others)}
