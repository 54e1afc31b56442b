"""RECORD, the list of a package's files with hash and size: true for patched files, the rest kept byte for byte.

The format is that of "Recording installed projects" in the Python packaging specifications: CSV rows of path, hash
(`sha256=` and the urlsafe base64 digest without padding) and size in bytes.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections.abc import Collection, Mapping


def row(path: str, content: bytes) -> list[str]:
    """RECORD's row for a file."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return [path, f"sha256={digest}", str(len(content))]


def rewrite(record: bytes, contents: Mapping[str, bytes | None], gone: Collection[str]) -> bytes:
    """RECORD after a swap.

    Args:
        record: RECORD as it is.
        contents: the new content of each changed file by path; None where it was deleted.
        gone: further paths whose rows go: removed bytecode.
    """
    lines = record.decode("utf-8").splitlines(keepends=True)
    end = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    result: list[str] = []
    listed: set[str] = set()
    for line in lines:
        path = _path(line)
        listed.add(path)
        if path not in contents and path not in gone:
            result.append(line)
        elif (content := contents.get(path)) is not None:
            result.append(_line(row(path, content), end))
    if result and not result[-1].endswith("\n"):
        result[-1] += end
    new = [(path, content) for path, content in sorted(contents.items()) if path not in listed and content is not None]
    return "".join([*result, *(_line(row(path, content), end) for path, content in new)]).encode("utf-8")


def faults(record: bytes, contents: Mapping[str, bytes | None]) -> list[str]:
    """Paths whose rows are not true: wrong hash or size, missing, twice there, or there for a file that is not."""
    rows = [cells for cells in csv.reader(record.decode("utf-8").splitlines()) if cells]
    wrong = []
    for path, content in sorted(contents.items()):
        wanted = [] if content is None else [row(path, content)]
        if [cells for cells in rows if cells[0] == path] != wanted:
            wrong.append(path)
    return wrong


def _path(line: str) -> str:
    cells = next(csv.reader([line]), [])
    return cells[0] if cells else ""


def _line(cells: list[str], end: str) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerow(cells)
    return text.getvalue()
