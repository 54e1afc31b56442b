"""The three files of a result, put in place whole: data first, header last."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.files import sync
from pipeline.prepare.header import DATA, HEADER, REJECTED, make_header
from pipeline.prepare.sample import Outcome, Rejected
from pipeline.prepare.source import file_sha256
from pipeline.prepare.summary import Account

PART = ".part"


def write_outcomes(folder: Path, outcomes: Iterable[Outcome]) -> Account:
    """Write samples and rejections to their files under temporary names.

    Returns:
        The counts, not yet closed.
    """
    account = Account()
    with _part(folder / DATA) as data, _part(folder / REJECTED) as rejected:
        for outcome in outcomes:
            account.add(outcome)
            if isinstance(outcome, Rejected):
                rejected.write(_line(dataclasses.asdict(outcome)))
                continue
            for sample in outcome.samples:
                data.write(sample.line)
    return account


def publish(
    folder: Path, fingerprint: dict[str, Any], counts: dict[str, Any], digest: Callable[[Path], str] = file_sha256
) -> None:
    """Name both files, then write the header. Killed in between, the next run finds none and starts over."""
    (folder / HEADER).unlink(missing_ok=True)
    for name in (DATA, REJECTED):
        (folder / (name + PART)).replace(folder / name)
    with _part(folder / HEADER) as header:
        header.write((json.dumps(make_header(folder, fingerprint, counts, digest), indent=2) + "\n").encode())
    (folder / (HEADER + PART)).replace(folder / HEADER)
    sync(folder)


def publish_rejected(folder: Path) -> Path:
    """Keep the rejections of a run that gave no sample; an earlier result's samples stay.

    Returns:
        The file of rejections.
    """
    (folder / (DATA + PART)).unlink()
    (folder / (REJECTED + PART)).replace(folder / REJECTED)
    return folder / REJECTED


def _line(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


@contextmanager
def _part(path: Path) -> Iterator[BinaryIO]:
    with path.with_name(path.name + PART).open("wb", buffering=1 << 20) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
