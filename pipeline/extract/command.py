"""`python -m pipeline extract`: the hidden states of tokenized samples, out of a target, into a store."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal

from pipeline.extract.job import Job, check_space, check_usable, free_bytes, settle
from pipeline.extract.layers import to_input_numbering
from pipeline.extract.progress import summary
from pipeline.extract.settings import parse
from pipeline.store.layout import REJECTED
from pipeline.store.records import reason_kind
from pipeline.store.writer import Store

_SHOWN = 4


def main(argv: list[str]) -> int:
    """Run the stage; `--help` tells the flags.

    Returns:
        0 when the store is complete.

    Raises:
        UserError: see docs/architecture.md for the codes.
    """
    job = settle(parse(argv))
    if job.settings.dry_run:
        _print_plan(job)
        return 0
    check_usable(job)
    folder = job.settings.output_dir
    info = {"model_path": str(job.target.folder.absolute()), "prepared_data": str(job.settings.prepared_data)}
    checks = {"recheck": job.settings.recheck, "repair": job.settings.repair}
    with Store.open_for_run(folder, job.identity(), info, **checks) as store:
        rate = _complete(job, store)
        manifest = store.finalise(job.plan.rejected, job.plan.input_samples)
    console = Console()
    console.print(summary(folder, manifest, _reasons(folder / REJECTED), rate))
    if rate is None:
        console.print(f"all {len(job.plan.units):,} units were done already; ./eyas verify {folder} checks them")
    return 0


def _complete(job: Job, store: Store) -> float | None:
    """Do the units that are missing; tokens a second, or None if there were none."""
    finished = store.finished_at_opening
    todo = {unit.index for unit in job.plan.units} - finished
    if not todo:
        return None
    check_space(job, todo)
    console = Console(stderr=True)
    if store.discarded:
        console.print(f"{_listed(store.discarded)} {'was' if len(store.discarded) == 1 else 'were'} half or damaged")
    if finished:
        console.print(f"{len(finished):,} of {len(job.plan.units):,} units are done, going on with the others")
    console.print(f"{job.samples:,} samples, {job.tokens:,} tokens; this run writes {decimal(job.bytes_of(todo))}")
    from pipeline.extract.run import run_units  # imports torch, which a finished store needs not

    try:
        return run_units(job, store, todo)
    except KeyboardInterrupt:
        done = len(store.finished_units())
        console.print(
            f"{done:,} of {len(job.plan.units):,} units are in {store.folder}; the same command goes on there"
        )
        raise


def _listed(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN:,} more files" if len(names) > _SHOWN else shown


def _print_plan(job: Job) -> None:
    """What `--dry-run` shows: everything that is known without the target's weights."""
    settings, target, units = job.settings, job.target, job.plan.units
    total = job.bytes_of({unit.index for unit in units})
    fill = job.tokens / (len(units) * settings.token_budget) if units else 0.0
    rows: dict[str, Any] = {
        "target": f"{settings.model_path} ({target.num_layers} layers, hidden {target.hidden_size}, {job.dtype})",
        "engine": f"{settings.engine}, tensor parallel {settings.tp_size}, "
        f"memory utilization {settings.gpu_memory_utilization}",
        "layers": f"outputs {job.layer_ids}, which serving calls inputs {to_input_numbering(job.layer_ids)}",
        "storage": job.storage,
        "samples": f"{job.samples:,} in units + {len(job.plan.rejected):,} rejected = {job.plan.input_samples:,}",
        "tokens": f"{job.tokens:,}",
        "steps": f"{len(units):,} units of at most {settings.batch_size} samples and {settings.token_budget:,} "
        f"tokens, {fill:.0%} full",
        "bytes": f"{total:,} ({decimal(total)}), {job.bytes_per_token:,} a token; "
        f"free at {settings.output_dir}: {decimal(free_bytes(settings.output_dir))}",
        "plan digest": job.plan.digest,
    }
    for name, value in rows.items():
        print(f"{name:<12} {value}")
    for reason, count in Counter(reason_kind(rejection.reason) for rejection in job.plan.rejected).most_common():
        print(f"  rejected   {count:,} x {reason}")


def _reasons(rejected: Path) -> Counter[str]:
    lines = rejected.read_text(encoding="utf-8").splitlines()
    return Counter(reason_kind(json.loads(line)["reason"]) for line in lines)
