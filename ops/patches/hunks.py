r"""The hunks of a unified diff, read strictly: bytes in, `Hunk`s out.

Lines end at b"\n" and nowhere else: form feeds, carriage returns and the like belong to the line. Counts must add up.
The format is the one of GNU diffutils' manual ("Detailed Description of Unified Format").
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ops.patches.errors import MalformedSeriesError

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(?: .*)?\n")
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_NO_NEWLINE = b"\\ No newline at end of file\n"


def split_lines(data: bytes) -> list[bytes]:
    r"""The lines of `data` with their b"\n"; only the last may lack it. `bytes.splitlines` would split at b"\r" too."""
    return _LINE.findall(data)


@dataclass(frozen=True)
class Hunk:
    """One hunk: where it starts (0-based line indices) and its lines as (b" ", b"-" or b"+", text)."""

    number: int
    old_index: int
    new_index: int
    lines: tuple[tuple[bytes, bytes], ...]

    @property
    def old(self) -> list[bytes]:
        """The lines that must be there: context and deletions."""
        return [text for sign, text in self.lines if sign != b"+"]

    @property
    def new(self) -> list[bytes]:
        """The lines that will be there: context and additions."""
        return [text for sign, text in self.lines if sign != b"-"]


class Reader:
    """A cursor over the patch's lines that knows how to complain."""

    def __init__(self, patch: str, data: bytes, first_line: int) -> None:
        self.patch, self.first_line, self.at = patch, first_line, 0
        self.lines = split_lines(data)
        if self.lines and not self.lines[-1].endswith(b"\n"):
            self.at = len(self.lines) - 1
            raise self.error("the last line has no line end; the file may be cut off")

    def peek(self) -> bytes:
        """The line at the cursor; empty at the end."""
        return self.lines[self.at] if self.at < len(self.lines) else b""

    def take(self) -> bytes:
        """The line at the cursor, which moves on."""
        line = self.peek()
        self.at += 1
        return line

    def error(self, what: str) -> MalformedSeriesError:
        """What is wrong with the line at the cursor."""
        return MalformedSeriesError(f"{self.patch} line {self.first_line + self.at}: {what}")


def read_hunks(reader: Reader) -> tuple[Hunk, ...]:
    """All hunks from the cursor on.

    Raises:
        MalformedSeriesError: there is none, or one is not as it should be.
    """
    hunks: list[Hunk] = []
    while reader.peek().startswith(b"@@"):
        before = hunks[-1] if hunks else Hunk(0, 0, 0, ())
        hunk = _hunk(reader, len(hunks) + 1)
        unchanged = hunk.old_index - (before.old_index + len(before.old))
        if unchanged < 0 or hunk.new_index - (before.new_index + len(before.new)) != unchanged:
            raise reader.error(f"hunk {hunk.number} overlaps the one before, or its line numbers do not add up")
        hunks.append(hunk)
    if not hunks:
        raise reader.error("expected a hunk, '@@ -A,B +C,D @@'")
    return tuple(hunks)


def _hunk(reader: Reader, number: int) -> Hunk:
    match = _HUNK.fullmatch(reader.peek())
    if not match:
        raise reader.error("expected a hunk, '@@ -A,B +C,D @@'")
    start_old, start_new = int(match[1]), int(match[3])
    left_old, left_new = (int(match[group] or b"1") for group in (2, 4))  # no count means one line
    # An empty side is numbered by the line before it, any other by its own first line.
    index_old, index_new = start_old - (left_old > 0), start_new - (left_new > 0)
    if min(index_old, index_new) < 0:
        raise reader.error("a hunk that is not empty cannot start at line 0")
    reader.take()
    lines: list[tuple[bytes, bytes]] = []
    while left_old > 0 or left_new > 0:
        sign, text = _hunk_line(reader)
        left_old -= sign != b"+"
        left_new -= sign != b"-"
        if min(left_old, left_new) < 0:
            raise reader.error(f"hunk {number} has more lines than its '@@' line says")
        reader.take()
        if reader.peek() == _NO_NEWLINE:
            text = text[:-1]
            reader.take()
        lines.append((sign, text))
    if reader.peek()[:1] in {b" ", b"+", b"\\"} or (reader.peek()[:1] == b"-" and reader.peek()[:4] != b"--- "):
        raise reader.error(f"hunk {number} has more lines than its '@@' line says")
    return Hunk(number, index_old, index_new, tuple(lines))


def _hunk_line(reader: Reader) -> tuple[bytes, bytes]:
    line = reader.peek()
    if line == b"\n":  # an empty context line whose blank an editor has stripped
        return b" ", line
    if line[:1] not in {b" ", b"-", b"+"} or len(line) < 2:
        raise reader.error("expected a line of a hunk; the hunk has fewer lines than its '@@' line says")
    return line[:1], line[1:]
