"""A file as a stream of plain bytes, whatever it is compressed with; told by its first bytes and not by its name."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

Kind = Literal["plain", "gzip", "zstd", "parquet", "arrow"]
BUFFER = 1 << 18
_FIRST_BYTES: tuple[tuple[bytes, Kind], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    (b"\xff\xff\xff\xff", "arrow"),
)
"""of Arrow's two forms, the file and the stream (which `datasets` writes)"""


@contextmanager
def opened(file: io.BufferedReader) -> Iterator[tuple[io.BufferedReader, Kind]]:
    """Look at an open file.

    Returns:
        Its bytes, decompressed and buffered, and what it is. Parquet and Arrow are read otherwise: their bytes are as
        they lie there.
    """
    start = file.peek(8)
    kind: Kind = next((kind for first, kind in _FIRST_BYTES if start.startswith(first)), "plain")
    if kind == "gzip":
        with gzip.GzipFile(fileobj=file) as inner:
            # read would go on to the end of a buffer, and where the file is cut before that it gives nothing of it.
            yield io.BufferedReader(_Readable(inner.read1), BUFFER), kind
    elif kind == "zstd":
        from pyarrow import CompressedInputStream

        with CompressedInputStream(file, "zstd") as inner:
            yield io.BufferedReader(_Readable(inner.read), BUFFER), kind
    else:
        yield file, kind


class _Readable(io.RawIOBase):
    """What the buffer needs of a stream."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
