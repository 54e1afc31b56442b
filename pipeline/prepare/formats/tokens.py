"""Rows that are tokenized already: `{"input_ids": [...], "loss_mask": [...]}`, or with `labels`, -100 where masked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.prepare.conversation import kind, own_id
from pipeline.prepare.formats.turns import Json
from pipeline.prepare.rejection import Rejection

KEYS = ("input_ids", "loss_mask", "labels", "attention_mask")
IGNORED = -100
"""the label of a token that is not trained, as transformers' losses have it"""


@dataclass(frozen=True)
class Tokens:
    """One row.

    Attributes:
        id: the row's own id, if it has one.
        input_ids: whole numbers, at least one; none is negative.
        loss_mask: 0 or 1 for each of them.
    """

    id: str | None
    input_ids: list[int]
    loss_mask: list[int]


def read(row: Json) -> Tokens:
    """The tokens of a row; without a mask all of them are trained.

    Raises:
        Rejection: they are not whole numbers, or their mask does not fit them.
    """
    ids = _numbers(row, "input_ids")
    if not ids:
        raise Rejection("empty-tokens", "'input_ids' has no token")
    if min(ids) < 0:
        raise Rejection("id-out-of-vocabulary", f"token id {min(ids)} is negative")
    if row.get("attention_mask") is not None and not all(_numbers(row, "attention_mask")):
        raise Rejection("unsupported-field", "'attention_mask' masks padding: give rows without it")
    mask = _mask(row, ids)
    if len(mask) != len(ids):
        raise Rejection("bad-mask", f"the mask has {len(mask)} entries for {len(ids)} tokens")
    return Tokens(own_id(row), ids, mask)


def _mask(row: Json, ids: list[int]) -> list[int]:
    if row.get("loss_mask") is not None:
        mask = [int(one) if isinstance(one, bool) else one for one in _list(row, "loss_mask")]
        if not all(one in (0, 1) and isinstance(one, int) for one in mask):
            raise Rejection("bad-mask", "'loss_mask' holds something that is neither 0 nor 1")
        return mask
    if row.get("labels") is None:
        return [1] * len(ids)
    labels = _numbers(row, "labels")
    if len(labels) == len(ids) and any(label not in (token, IGNORED) for token, label in zip(ids, labels, strict=True)):
        raise Rejection("bad-mask", "'labels' are other tokens than 'input_ids' (are they shifted?)")
    return [int(label != IGNORED) for label in labels]


def _numbers(row: Json, key: str) -> list[int]:
    values = _list(row, key)
    for value in values:
        if type(value) is not int:
            raise Rejection("wrong-type", f"'{key}' holds {kind(value)} that is not a whole number")
    return values


def _list(row: Json, key: str) -> list[Any]:
    values = row.get(key)
    if not isinstance(values, list):
        raise Rejection("wrong-type", f"'{key}' of the row is {kind(values)}, not a list")
    return values
