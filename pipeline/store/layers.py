"""A store's layers as a whole, from what the units' records say of theirs. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from pipeline.store.sidecar import LayerRecord, Sidecar


def whole_layers(sidecars: Iterable[Sidecar]) -> list[dict[str, Any]]:
    """Statistics per layer over all rows of a store, for its manifest.

    Returns:
        For each captured layer `output` (its id), `norm_min`, `norm_mean` and `norm_max` of the rows' L2 norms (null:
        not finite), `non_finite` values, and `relative_error` of the storage (null: it loses nothing): the Frobenius
        norm of (stored - computed) over that of computed, over all rows.
    """
    filled = [sidecar for sidecar in sidecars if sidecar.rows]
    rows = [sidecar.rows for sidecar in filled]
    return [_whole(records, rows) for records in zip(*(sidecar.layers for sidecar in filled), strict=True)]


def _whole(records: Sequence[LayerRecord], rows: Sequence[int]) -> dict[str, Any]:
    means = [record.norm_mean for record in records]
    finite = [mean for mean in means if mean is not None]
    total = sum(mean * count for mean, count in zip(finite, rows, strict=True)) if len(finite) == len(means) else None
    return {
        "output": records[0].output,
        "norm_min": _least([record.norm_min for record in records]),
        "norm_mean": None if total is None else total / sum(rows),
        "norm_max": _most([record.norm_max for record in records]),
        "non_finite": sum(record.non_finite for record in records),
        "relative_error": _error(records),
    }


def _least(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None


def _most(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _error(records: Sequence[LayerRecord]) -> float | None:
    lossy = [(record.relative_error, record.square_sum) for record in records if record.relative_error is not None]
    if not lossy:
        return None
    squares = math.fsum(square or 0.0 for _, square in lossy)
    lost = math.fsum(error**2 * (square or 0.0) for error, square in lossy)
    return math.sqrt(lost / squares) if squares else 0.0
