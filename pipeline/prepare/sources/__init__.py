"""Where rows come from: files of several kinds, folders of them, and data sets of a hub. A module for each.

What is wrong with a file from some place on is one row with a fault, so that the account has it and the run goes on.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from io import BufferedReader
from typing import cast

from pipeline.errors import InputError
from pipeline.prepare.source import Row
from pipeline.prepare.sources.array import document_rows, is_document
from pipeline.prepare.sources.files import Part
from pipeline.prepare.sources.lines import line_rows
from pipeline.prepare.sources.stream import BUFFER, opened

BROKEN = "source-broken"
# EOFError: a gzip file ends in the middle. pyarrow's errors are ValueError, OSError, KeyError and NotImplementedError.
DAMAGES = (OSError, EOFError, ValueError, KeyError, NotImplementedError, zlib.error)


def rows_of(part: Part) -> Iterator[Row]:
    """The rows of one file, or of a hub's data set, in order.

    Raises:
        InputError: it is not there, or cannot be opened.
    """
    rows = _read(part)
    line = 0
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except DAMAGES as error:
            why = " ".join(str(error).split()) or type(error).__name__
            detail = f"{part.name} cannot be read behind row {line}, its rest is lost: {why}"
            yield Row(part.name, line + 1, b"", fault=(BROKEN, detail))
            return
        line = row.line
        yield row if part.form is None else row._replace(form=part.form)


def _read(part: Part) -> Iterator[Row]:
    if part.hub:
        from pipeline.prepare.sources.hub import hub_rows

        yield from hub_rows(part)
        return
    try:
        file = cast(BufferedReader, part.path.open("rb", buffering=BUFFER))
    except OSError as error:
        raise InputError(f"cannot read {part.path}: {error.strerror}") from error
    with file, opened(file) as (stream, kind):
        if kind in {"parquet", "arrow"}:
            from pipeline.prepare.sources.columns import table_rows

            yield from table_rows(file, part.name, kind)
        elif part.is_json and is_document(stream):
            yield from document_rows(stream, part.name)
        else:
            yield from line_rows(stream, part.name)
