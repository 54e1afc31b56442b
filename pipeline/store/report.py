"""What the store commands show: tables for people, and the figures as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from pipeline.errors import SettingsError
from pipeline.store.derive.build import Built
from pipeline.store.stats import Spread, StoreStats


def show_built(console: Console, stores: Sequence[Built]) -> None:
    """What was made, and how."""
    for built in stores:
        counts = built.manifest["counts"]
        console.print(
            f"{built.folder}: {counts['captured']:,} captured + {counts['rejected']:,} rejected = {counts['input']:,} "
            f"samples; {counts['rows']:,} rows in {counts['units']:,} units; digest {built.manifest['store_digest']}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    linked, copied, rewritten, written = (
        sum(getattr(built, name) for built in stores) for name in ("linked", "copied", "rewritten", "written")
    )
    why = " (another file system or mount: they cannot be linked)" if copied else ""
    console.print(
        f"shard files: {linked:,} linked, {copied:,} copied{why}, {rewritten:,} cut and written anew; "
        f"{decimal(written)} written",
        highlight=False,
        soft_wrap=True,
    )


def show_stats(console: Console, stats: StoreStats) -> None:
    """The figures in tables."""
    counts = stats.counts
    table = Table(title=escape(f"store {stats.store}"), show_header=False, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    rows = {
        "samples": f"{counts['captured']:,} captured + {counts['rejected']:,} rejected = {counts['input']:,}",
        **{f"  {reason}": f"{count:,}" for reason, count in stats.rejected.items()},
        "states": f"{counts['rows']:,} rows, {stats.dtype} as {stats.storage}",
        "on disk": f"{decimal(counts['shard_bytes'])} in {counts['units']:,} units, "
        f"{_number(stats.bytes_per_row, ',.0f')} bytes a row",
        "trained tokens": f"{counts['trained_tokens']:,}, {_number(stats.trained_share, '.1%')}",
        **({"token budget": f"{stats.token_fill:.1%} used"} if stats.token_fill else {}),
        "store digest": stats.store_digest,
    }
    for name, value in rows.items():
        table.add_row(escape(name), value)
    console.print(table)
    console.print(_spreads(stats))
    console.print(_layers(stats))


def write_stats(file: Path, stats: StoreStats) -> None:
    """All figures as one JSON object.

    Raises:
        SettingsError: the file cannot be written.
    """
    try:
        file.write_text(json.dumps(asdict(stats), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"cannot write --json {file}: {error.strerror}") from error


def _spreads(stats: StoreStats) -> Table:
    table = Table("", "least", "5%", "25%", "median", "75%", "95%", "most", "mean")
    named = {
        "tokens a sample": stats.lengths,
        "rows a unit": stats.unit_rows,
        "samples a unit": stats.unit_samples,
    }
    for name, spread in named.items():
        if spread is not None:
            table.add_row(name, *_cells(spread))
    return table


def _cells(spread: Spread) -> list[str]:
    *ranks, mean = asdict(spread).values()
    return [*(f"{value:,}" for value in ranks), f"{mean:,.1f}"]


def _layers(stats: StoreStats) -> Table:
    table = Table("layer (output)", "in serving (input)", "norm least", "mean", "most", "non-finite", "storage error")
    for layer in stats.layers:
        norms = (_number(layer[f"norm_{name}"], ".4g") for name in ("min", "mean", "max"))
        error = _number(layer["relative_error"], ".2e")
        table.add_row(str(layer["output"]), str(layer["input"]), *norms, f"{layer['non_finite']:,}", error)
    return table


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
