"""JSONL: one row a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from pipeline.prepare.source import BYTE_ORDER_MARK, Row

LONGEST = 1 << 26
"""bytes of a row; a longer one is skipped, so that a file without line ends does not fill the memory"""


def line_rows(stream: BinaryIO, name: str) -> Iterator[Row]:
    """The rows of a stream; lines end at line feeds only, and blank ones are no rows."""
    number = 0
    while line := stream.readline(LONGEST + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        if len(line) > LONGEST:
            while not line.endswith(b"\n") and (line := stream.readline(LONGEST)):
                pass
            yield Row(name, number, b"", fault=("row-too-long", f"it has more than {LONGEST:,} bytes"))
        elif not line.isspace():
            yield Row(name, number, line)
