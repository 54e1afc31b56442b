"""What an export can say about where the draft comes from: its store, its training, its evaluation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pipeline.errors import InputError
from pipeline.store.index import read_index
from pipeline.store.layout import shard_file
from pipeline.store.shard import MappedShard

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Sources:
    """As much as the command line gave."""

    manifest: Json | None = None
    """the store's"""
    coverage: float | None = None
    """share of the store's trained tokens that the draft can propose"""
    training: Json | None = None
    """the training's report.json"""
    evaluation: str | None = None
    """the evaluation's table"""


def read_report(file: Path | None, what: str) -> Json | None:
    """A JSON file that another stage wrote.

    Raises:
        InputError: it cannot be read, or is no JSON object.
    """
    if file is None:
        return None
    try:
        report = json.loads(file.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {what} {file}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{what} {file} is not JSON: {error}") from error
    if not isinstance(report, dict):
        raise InputError(f"{what} {file} holds no report")
    return report


def read_evaluation(file: Path | None) -> str | None:
    """The table that `evaluate` leaves beside its JSON, in evaluation.txt.

    Raises:
        InputError: one of the two is missing or unreadable.
    """
    if read_report(file, "--evaluation") is None or file is None:
        return None
    table = file.with_suffix(".txt")
    try:
        return table.read_text("utf-8").rstrip()
    except OSError as error:
        raise InputError(f"cannot read {table}, the table beside --evaluation: {error.strerror}") from error


def coverage(store: Path, to_target: torch.Tensor | None) -> float:
    """The share of a store's trained tokens that a draft can propose; reads tokens and masks, no states.

    Args:
        store: its folder.
        to_target: the target's id of each draft id; None: the draft has the whole vocabulary.

    Raises:
        InputError, StoreDamagedError: it cannot be read.
    """
    if to_target is None:
        return 1.0
    covered = trained = 0
    index = read_index(store)
    for unit in index.units.tolist():
        if index.ids_of(unit):
            shard = MappedShard(shard_file(store, unit)).tensors
            tokens = shard["input_ids"][shard["loss_mask"].bool()]
            trained += len(tokens)
            covered += int(torch.isin(tokens, to_target).sum())
    return covered / trained if trained else 0.0
