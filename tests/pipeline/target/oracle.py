"""The demo target's tokenizer as llama.cpp defines it, in plain Python: slow, and sharing no code with what it checks.

llama.cpp, src/llama-vocab.cpp: tokenizer model `gpt2` with pre-tokenizer `smollm` cuts a text at its control tokens,
then by the two expressions below, one after the other, the text between two matches being a piece too; a piece's bytes
become letters by GPT-2's table and are merged, lowest rank first. A byte that is no token is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import regex

from tests.pipeline.target.metadata import field

SPLITS = [
    regex.compile(r"\p{N}"),
    regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"),
]
CONTROL = 3


class Oracle:
    """Encodes and decodes by the definition."""

    def __init__(self, gguf: Path) -> None:
        self._tokens: list[str] = field(gguf, "tokenizer.ggml.tokens")
        self._ids = {token: number for number, token in enumerate(self._tokens)}
        self._ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(field(gguf, "tokenizer.ggml.merges"))}
        kinds = field(gguf, "tokenizer.ggml.token_type")
        self.control = [token for token, kind in zip(self._tokens, kinds, strict=True) if kind == CONTROL]
        self._cut = regex.compile("(" + "|".join(map(regex.escape, sorted(self.control, key=len, reverse=True))) + ")")
        self._letters = letters()
        self._bytes = {letter: byte for byte, letter in self._letters.items()}

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in self._cut.split(text):
            if part in self.control:
                ids.append(self._ids[part])
            else:
                for piece in split(part):
                    ids += [self._ids[token] for token in self._merge(piece) if token in self._ids]
        return ids

    def decode(self, ids: list[int]) -> str:
        content = b""
        for number in ids:
            token = self._tokens[number]
            content += token.encode() if token in self.control else bytes(self._bytes[letter] for letter in token)
        return content.decode("utf-8", errors="replace")

    def _merge(self, piece: str) -> list[str]:
        word = [self._letters[byte] for byte in piece.encode()]
        while len(word) > 1:
            pairs = list(pairwise(word))
            best = min(range(len(pairs)), key=lambda place: self._ranks.get(pairs[place], len(self._ranks)))
            if pairs[best] not in self._ranks:
                break
            word[best : best + 2] = ["".join(pairs[best])]
        return word


def split(text: str) -> list[str]:
    """Apply the expressions in turn."""
    pieces = [text]
    for expression in SPLITS:
        pieces = [part for piece in pieces for part in _matches_and_gaps(expression, piece)]
    return pieces


def _matches_and_gaps(expression: regex.Pattern[str], text: str) -> Iterator[str]:
    end = 0
    for match in expression.finditer(text):
        yield from (part for part in (text[end : match.start()], match.group()) if part)
        end = match.end()
    if text[end:]:
        yield text[end:]


def letters() -> dict[int, str]:
    """GPT-2's table: printable bytes of Latin-1 stand for themselves, all others for code points from 256 upward."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(others)}
