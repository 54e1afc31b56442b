"""Parquet and Arrow: rows out of columns, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from pipeline.prepare.formats import KNOWN_KEYS
from pipeline.prepare.source import Row

ROWS = 256
"""of a batch: what is in memory at once, beside what the file has compressed together"""


def table_rows(file: BinaryIO, name: str, kind: str) -> Iterator[Row]:
    """The rows of a table, numbered from 1.

    Args:
        file: open, at its start.
        name: the file's.
        kind: parquet or arrow.

    Raises:
        ValueError, OSError: pyarrow cannot read it; its errors are of these classes.
    """
    number = 0
    for batch in _parquet(file) if kind == "parquet" else _arrow(file):
        for row in batch.to_pylist():
            number += 1
            yield Row(name, number, encoded(row))


def encoded(row: dict[str, Any]) -> bytes:
    """A row as JSON. A column of objects cannot leave a key out: what is null in one is as good as not there."""
    return msgspec.json.encode(_without_nulls(row), enc_hook=str)


def _parquet(file: BinaryIO) -> Iterator[Any]:
    from pyarrow import parquet

    table = parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
    names = table.schema_arrow.names
    known = [name for name in names if name in KNOWN_KEYS]
    yield from table.iter_batches(ROWS, columns=known or names, use_threads=False)


def _arrow(file: BinaryIO) -> Iterator[Any]:
    from pyarrow import ipc

    is_file = file.read(6) == b"ARROW1"
    file.seek(0)
    if is_file:
        reader = ipc.open_file(file)
        batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        batches = iter(ipc.open_stream(file))
    for batch in batches:
        names = [name for name in batch.schema.names if name in KNOWN_KEYS]
        chosen = batch.select(names) if names else batch
        for start in range(0, chosen.num_rows, ROWS):
            yield chosen.slice(start, ROWS)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list) and value and not isinstance(value[0], int | str):
        return [_without_nulls(inner) for inner in value]
    return value
