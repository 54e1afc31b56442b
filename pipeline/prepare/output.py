"""The three files of a result, put in place whole: data first, header last."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from pipeline.files import sync
from pipeline.prepare.header import DATA, HEADER, REJECTED, make_header
from pipeline.prepare.sample import Rejected, Sample
from pipeline.prepare.summary import Account

PART = ".part"


def write_outcomes(folder: Path, outcomes: Iterable[list[Sample] | Rejected]) -> Account:
    """Write samples and rejections to their files under temporary names.

    Returns:
        The counts; `rows_read` is left to whoever read the rows.
    """
    account = Account()
    with _part(folder / DATA) as data, _part(folder / REJECTED) as rejected:
        for outcome in outcomes:
            account.add(outcome)
            if isinstance(outcome, Rejected):
                rejected.write(json.dumps(dataclasses.asdict(outcome), ensure_ascii=False) + "\n")
                continue
            for sample in outcome:
                tokens = {"input_ids": sample.encoded.input_ids, "loss_mask": sample.encoded.loss_mask}
                data.write(json.dumps({"id": sample.id, **tokens}) + "\n")
    return account


def publish(folder: Path, fingerprint: dict[str, Any], counts: dict[str, Any]) -> None:
    """Name both files, then write the header. Killed in between, the next run finds none and starts over."""
    (folder / HEADER).unlink(missing_ok=True)
    for name in (DATA, REJECTED):
        (folder / (name + PART)).replace(folder / name)
    with _part(folder / HEADER) as header:
        header.write(json.dumps(make_header(folder, fingerprint, counts), indent=2) + "\n")
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


@contextmanager
def _part(path: Path) -> Iterator[TextIO]:
    with path.with_name(path.name + PART).open("w", encoding="utf-8", errors="backslashreplace") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
