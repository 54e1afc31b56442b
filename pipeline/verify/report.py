"""What verify shows: tables for people, and the same as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from pipeline.errors import SettingsError
from pipeline.verify.integrity import Integrity

if TYPE_CHECKING:
    from pipeline.verify.compare import Comparison

_FAULTS_SHOWN = 10


def show_integrity(console: Console, found: Integrity) -> None:
    """Counts, and the first faults."""
    counts = found.manifest.get("counts", {})
    console.print(
        f"{found.samples:,} captured + {counts.get('rejected', 0):,} rejected = {counts.get('input', 0):,} samples; "
        f"{found.rows:,} rows in {found.units:,} units, {decimal(found.bytes)}; {found.non_finite:,} non-finite values"
    )
    if not found.faults:
        console.print("every checksum, shape and count is right")
    _list(console, found.faults)


def show_comparison(console: Console, result: Comparison) -> None:
    """The table of layers, the predictions, and the first faults."""
    noise = "" if result.dtype == "float32" else f"; noise: transformers in {result.dtype}"
    if result.storage_error is not None:
        noise += f", stored as {result.storage}"
    console.print(
        f"{len(result.samples)} samples, {result.rows:,} rows, computed again by transformers one at a time; errors "
        f"are relative to float32{noise}"
    )
    if result.storage_error is not None:
        console.print(
            f"the storage is {result.storage}: it lost {result.storage_error:.1%} of a layer at most (the manifest's "
            "relative_error), and errors below that do not show here"
        )
    table = Table("layer", "worst sample", "noise", "median row / noise", "worst row", "outliers / noise", "scale")
    for layer in result.layers:
        table.add_row(
            str(layer.output),
            f"{layer.frobenius:.1e}",
            _number(layer.frobenius_noise, ".1e"),
            _number(layer.noise_ratio, ".2f"),
            f"{layer.row:.1e}",
            "-" if layer.outliers is None else f"{layer.outliers} / {layer.outliers_noise}",
            f"{layer.scale:.5f}",
        )
    console.print(table)
    if result.logits:
        console.print(
            f"lm_head(norm(last)) against the target's own prediction: log-probabilities within "
            f"{result.logits.logprob:.1e} (noise {_number(result.logits.logprob_noise, '.1e')}), the same top token in "
            f"{result.logits.same_top:.2%} of the rows (noise {_number(result.logits.same_top_noise, '.2%')})"
        )
    else:
        console.print("the last layer was not captured: predictions cannot be compared")
    _list(console, (_in_words(result, at) for at in range(len(result.faults))))


def headline(result: Comparison) -> str:
    """The worst fault and what is the matter, in one line."""
    more = f" (and {len(result.faults) - 1} more)" if len(result.faults) > 1 else ""
    return f"{_in_words(result, 0)}{more}; {result.diagnosis}"


def write_json(file: Path, found: Integrity, result: Comparison | None) -> None:
    """Everything that was found, as one JSON object.

    Raises:
        SettingsError: the file cannot be written.
    """
    report = {"integrity": asdict(found), "reference": asdict(result) if result else None}
    try:
        file.write_text(json.dumps(_plain(report), indent=2, allow_nan=False) + "\n")
    except OSError as error:
        raise SettingsError(f"cannot write --json {file}: {error.strerror}") from error


def _in_words(result: Comparison, at: int) -> str:
    fault = result.faults[at]
    where = [
        f"layer {fault.layer}" if fault.layer is not None else "",
        f"sample {fault.sample!r}" if fault.sample else "",
    ]
    return f"{', '.join(part for part in where if part) or 'predictions'}: {fault.what}"


def _list(console: Console, faults: Iterable[str]) -> None:
    lines = list(faults)
    for line in lines[:_FAULTS_SHOWN]:
        console.print(f"  {line}", markup=False, highlight=False)
    if len(lines) > _FAULTS_SHOWN:
        console.print(f"  and {len(lines) - _FAULTS_SHOWN:,} more")


def _plain(value: Any) -> Any:
    """JSON has no infinity, which is the error of a state that is not finite; such figures become null."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
