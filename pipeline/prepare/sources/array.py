"""One JSON document with many rows: an array, an object with one list, or objects that follow each other.

The rows' ends are found by counting brackets outside of texts; nothing is decoded here. So memory holds one row, and
a row that is no JSON is one bad row and does not take the others with it, as long as its brackets are in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedReader
from typing import Any, BinaryIO

from pipeline.prepare.conversation import row_of
from pipeline.prepare.formats import detect
from pipeline.prepare.formats.turns import TURN_LISTS
from pipeline.prepare.rejection import Rejection
from pipeline.prepare.source import BYTE_ORDER_MARK, Row
from pipeline.prepare.sources.lines import LONGEST

BLOCK = 1 << 18
# A text with its closing quote, or as far as it goes; or one of the marks that rows end at.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*("?)|[\[\]{},]', re.DOTALL)
_ROW_LISTS = frozenset({*TURN_LISTS, "input_ids", "tools", "history", "prompt", "completion", "response"})
"""lists that belong to one row: an object whose first list is one of them is a row itself"""


def is_document(stream: BufferedReader) -> bool:
    """Whether a .json file is one document, and not JSONL under that name."""
    start = stream.peek(BLOCK).removeprefix(BYTE_ORDER_MARK).lstrip()
    if start[:1] != b"{":
        return start[:1] == b"["
    lines = start.split(b"\n", 2)
    first, second = (_object(line) for line in [*lines, b""][:2])
    if first is None:
        # It goes on over several lines, or is broken and one of many.
        return second is None
    if any(line.strip() for line in lines[1:]):
        return False
    with suppress(Rejection):
        detect(first)
        return False
    return True


def document_rows(stream: BinaryIO, name: str) -> Iterator[Row]:
    """The rows of a document, numbered from 1.

    Raises:
        ValueError: it ends within a row, a row is too long, or there is something that belongs to no row.
    """
    for number, content in enumerate(_Scan(stream).rows(), 1):
        yield Row(name, number, content)


def _object(line: bytes) -> dict[str, Any] | None:
    with suppress(Rejection):
        return row_of(line)
    return None


class _Scan:
    """A document, looked at block by block."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._buffer = stream.read(BLOCK).removeprefix(BYTE_ORDER_MARK)
        self._base = 0  # the buffer's place in the document
        self._row = 0  # where in the document the row at hand starts: from there on the buffer is kept

    def rows(self) -> Iterator[bytes]:  # noqa: PLR0912 - one pass, each mark with its meaning
        """The bytes of each row."""
        level = self._level()
        depth = lists = 0
        inside = level == 0
        for mark, at in self._marks():
            if mark in b"[{":
                depth += 1
                if depth == level and mark == b"[":
                    inside, lists, self._row = True, lists + 1, at + 1
                    if lists > 1:
                        raise ValueError(f"a second list starts at byte {at}")
            elif mark == b",":
                if inside and depth == level:
                    yield self._to(at)
                    self._row = at + 1
            else:
                if inside and depth == level and (last := self._to(at)):
                    yield last
                inside = inside and depth != level
                depth -= 1
                if depth < 0:
                    raise ValueError(f"a bracket too many at byte {at}")
                if depth == level == 0:
                    yield self._to(at + 1)
                    self._row, inside = at + 1, True
            if not inside:
                self._row = at + 1
        end = self._base + len(self._buffer)
        if depth:
            raise ValueError(f"it ends within a row or a list, at byte {end}")
        if self._to(end):
            raise ValueError(f"what stands at byte {self._row} and behind is no row")

    def _level(self) -> int:
        """How many brackets are open around a row: 1 in an array, 2 in an object's list, else 0."""
        if self._buffer.lstrip()[:1] == b"[":
            return 1
        depth, key = 0, b""
        for match in _TOKEN.finditer(self._buffer):
            token = match.group()
            if token == b"[" and depth == 1:
                return 0 if key.decode("utf-8", "replace") in _ROW_LISTS else 2
            if token[:1] == b'"':
                key = token[1:-1] if depth == 1 else key
            else:
                depth += (token in b"[{") - (token in b"]}")
        return 0

    def _to(self, end: int) -> bytes:
        return self._buffer[self._row - self._base : end - self._base].strip()

    def _marks(self) -> Iterator[tuple[bytes, int]]:
        """Brackets and commas outside of texts, with their places in the document."""
        place = 0
        while True:
            for match in _TOKEN.finditer(self._buffer, place):
                token = match.group()
                if token[:1] != b'"':
                    yield token, self._base + match.start()
                elif not match.group(1):
                    place = match.start()
                    break
            else:
                place = len(self._buffer)
            front = self._row - self._base
            kept = self._buffer[front:]
            if len(kept) > LONGEST:
                raise ValueError(f"a row has more than {LONGEST:,} bytes")
            # As much again as there is: a long row is looked at a few times and not once a block.
            block = self._stream.read(max(BLOCK, len(kept)))
            if not block:
                if place < len(self._buffer):
                    raise ValueError("it ends within a text")
                return
            self._buffer = kept + block
            self._base += front
            place -= front
