"""`report.json`: what was trained from what, how, and with what result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.errors import InputError
from pipeline.extract.digests import stack_identity
from pipeline.store.durable import write_synced
from pipeline.train.job import Job
from pipeline.train.kept import Kept

FILE = "report.json"
Json = dict[str, Any]


def write(job: Job, measured: Json) -> None:
    """Write the report of a run that has come to its end."""
    report = {
        "format": 1,
        "status": "complete",
        "identity": job.identity,
        "settings": {name: _plain(value) for name, value in asdict(job.settings).items()},
        "store": {"digest": job.manifest["store_digest"], "layer_ids": job.manifest["layer_ids"]},
        "target": {"folder": str(job.target_folder), "digest": job.model_sha256},
        "stack": _stack(),
        "samples": {"training": len(job.training), "validation": len(job.validation)},
        "tokens": {"training": job.tokens(job.training), "validation": job.tokens(job.validation)},
        "vocabulary": job.vocabulary_report,
        **measured,
    }
    write_synced(job.settings.output_dir / FILE, [json.dumps(report, indent=2).encode() + b"\n"])


def finished(job: Job) -> Json | None:
    """The report of this very run, if it has come to its end and its best checkpoint is there."""
    try:
        report: Json = json.loads((job.settings.output_dir / FILE).read_bytes())
    except (OSError, ValueError):
        return None
    same = report.get("identity") == json.loads(json.dumps(job.identity)) and report.get("status") == "complete"
    kept = Kept(job.settings.output_dir, job.settings.keep)
    return report if same and report["best"]["step"] in kept.steps() else None


def text(report: Mapping[str, Any]) -> str:
    """The lines that close a run."""
    best, validations, words = report["best"], report["validations"], report["vocabulary"]
    shares = " ".join(
        f"{taken / max(asked, 1):.1%}" for taken, asked in zip(best["taken"], best["proposed"], strict=True)
    )
    spent, rate = report["seconds"], report["tokens_per_second"]
    whole = sum(spent.values()) or 1
    lines = [
        f"best        step {best['step']}: acceptance length {best['acceptance_length']:.3f} on "
        f"{report['samples']['validation']:,} held-out samples (taken: {shares})",
        f"last        step {report['steps']}: acceptance length {validations[-1]['acceptance_length']:.3f}",
        f"parameters  {report['parameters']['trained']:,} trained, {report['parameters']['frozen']:,} frozen",
        f"coverage    {words['covered']:.2%} of trained tokens with {words['size']:,} tokens",
    ]
    if rate:
        parts = ", ".join(f"{phase} {seconds / whole:.1%}" for phase, seconds in spent.items())
        lines.append(f"rate        {rate:,.0f} tokens/s ({parts})")
    return "\n".join(lines)


def _stack() -> Json | None:
    """What this environment is made of; null in one that was made by hand."""
    try:
        return stack_identity()
    except InputError:
        return None


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
