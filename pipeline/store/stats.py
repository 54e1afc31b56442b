"""What is in a store, from its records alone: no states are read, and torch is not imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.store.derive.source import Source
from pipeline.store.records import reason_kind


@dataclass(frozen=True)
class Spread:
    """How some numbers are spread: their nearest-rank quantiles and mean."""

    least: int
    p05: int
    p25: int
    median: int
    p75: int
    p95: int
    most: int
    mean: float


@dataclass(frozen=True, kw_only=True)
class StoreStats:
    """All figures of a store."""

    store: str
    store_digest: str
    dtype: str
    storage: str
    counts: dict[str, int]
    """as in the manifest"""
    bytes_per_row: float | None
    """of shard files"""
    trained_share: float | None
    """tokens that are trained on, of all"""
    lengths: Spread | None
    """tokens of a sample"""
    unit_rows: Spread | None
    """rows of a unit that has any"""
    unit_samples: Spread | None
    token_fill: float | None
    """rows over what the units could have held (`token_budget`); over 1 where single samples are longer"""
    layers: list[dict[str, Any]]
    """as in the manifest, and the layer's number in serving as `input`"""
    rejected: dict[str, int]
    """how many samples for which kind of reason, most frequent first"""


def store_stats(folder: Path) -> StoreStats:
    """Look at a complete store.

    Args:
        folder: the store, or a run's folder with store/ in it.

    Raises:
        InputError, StoreDamagedError, StoreMismatchError: as `Source`.
    """
    source = Source(folder)
    lengths, rows, samples = list[int](), list[int](), list[int]()
    for unit in source.sidecars():
        if unit.samples:
            rows.append(unit.rows)
            samples.append(len(unit.samples))
            lengths += (sample.rows for sample in unit.samples)
    manifest = source.manifest
    counts: dict[str, int] = manifest["counts"]
    budget = manifest["settings"].get("token_budget")
    inputs = manifest["layer_ids"]["input"]
    return StoreStats(
        store=str(source.folder),
        store_digest=manifest["store_digest"],
        dtype=manifest["dtype"],
        storage=manifest["storage"],
        counts=counts,
        bytes_per_row=_share(counts["shard_bytes"], counts["rows"]),
        trained_share=_share(counts["trained_tokens"], counts["rows"]),
        lengths=spread(lengths),
        unit_rows=spread(rows),
        unit_samples=spread(samples),
        token_fill=_share(counts["rows"], len(rows) * budget) if budget else None,
        layers=[{**layer, "input": number} for layer, number in zip(manifest["layers"], inputs, strict=False)],
        rejected=dict(Counter(reason_kind(record.reason) for record in source.rejected()).most_common()),
    )


def spread(values: Sequence[int]) -> Spread | None:
    """The spread of some numbers; None of none."""
    if not values:
        return None
    ordered = sorted(values)

    p05, p25, median, p75, p95 = (ordered[-(-percent * len(ordered) // 100) - 1] for percent in (5, 25, 50, 75, 95))
    return Spread(ordered[0], p05, p25, median, p75, p95, ordered[-1], sum(ordered) / len(ordered))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
