"""`python -m pipeline estimate`: the acceptance length that a draft will have in serving, from a held-out store."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from pipeline.errors import SettingsError
from pipeline.extract.digests import data_digest
from pipeline.extract.target import locate_target, read_target
from pipeline.store.durable import write_synced
from pipeline.store.layout import store_in

if TYPE_CHECKING:
    from pipeline.estimate.run import Estimate

REPORT = "estimate.json"

_OWN_ANSWERS = 0.98
"""Share of an answer's tokens that are the target's most likely ones, below which the answers are not its own greedy
ones: near-ties, computed twice in bfloat16, fall differently for about one token in a hundred."""


def main(argv: list[str]) -> int:
    """Run the stage; `--help` tells the flags.

    Returns:
        0.

    Raises:
        SettingsError, InputError, StoreDamagedError, StoreMismatchError: see docs/architecture.md.
        FitError: store, target and draft do not fit each other.
        CheckpointError: the draft is damaged.
        NoSamplesError: no answer in the store to estimate from.
    """
    flags = _parse(argv)
    from pipeline.estimate.run import estimate  # these import torch, which --help needs not
    from pipeline.export.draft import WEIGHTS, read_draft
    from pipeline.export.fit import check_store, check_target
    from pipeline.store.dataset import HiddenStateDataset

    store = store_in(flags.store)
    draft, target = read_draft(flags.draft), read_target(locate_target(flags.model_path, config_only=False))
    check_target(draft, target)
    dataset, console = HiddenStateDataset(store, check="lengths"), Console(stderr=True)
    check_store(draft, target, store, dataset.index.manifest)
    with console.status("drafting") as status:
        found = estimate(
            dataset,
            draft,
            target.folder,
            flags.num_speculative_tokens,
            lambda done: status.update(f"drafting: sample {done:,} of {len(dataset):,}"),
        )
    report = {
        **_figures(found),
        "draft": str(flags.draft),
        "draft_sha256": data_digest(flags.draft / WEIGHTS),
        "store_digest": dataset.index.manifest["store_digest"],
        "num_speculative_tokens": flags.num_speculative_tokens,
    }
    _write(flags.output_dir, report)
    Console().print(_table(found))
    if found.greedy_share < _OWN_ANSWERS:
        console.print(
            f"only {found.greedy_share:.1%} of the answers' tokens are the target's most likely ones: these are not "
            "its own greedy answers, and serving them will not give this acceptance length",
            soft_wrap=True,
        )
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline estimate",
        description="The acceptance length that a draft will have when it is served, from a held-out store.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--store", type=Path, required=True, help="the target's own greedy answers to held-out prompts, extracted")
    add("--model-path", type=Path, required=True, help="the target's folder")
    add("--draft", type=Path, required=True, help="a checkpoint's folder, such as best/ of a training run")
    add("--output-dir", type=Path, required=True, help=f"where {REPORT} goes")
    add("--num-speculative-tokens", type=int, default=3, help="draft tokens a round (default: %(default)s)")
    flags = parser.parse_args(argv)
    if flags.num_speculative_tokens < 1:
        raise SettingsError(f"--num-speculative-tokens must be at least 1, not {flags.num_speculative_tokens}")
    return flags


def _figures(found: Estimate) -> dict[str, Any]:
    counts = found.counts
    return {
        "acceptance_length": counts.acceptance_length,
        "standard_error": found.standard_error if found.samples > 1 else None,
        "accepted_per_position": counts.accepted_per_position,
        "drafts": counts.drafts,
        "tokens": counts.tokens,
        "samples": found.samples,
        "answers": found.answers,
        "unknown_after_end": counts.unknown,
        "conditional_accuracy": counts.conditional_accuracy,
        "greedy_share": found.greedy_share,
    }


def _write(folder: Path, report: dict[str, Any]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"cannot make {folder}: {error.strerror}: give another --output-dir") from error
    write_synced(folder / REPORT, [json.dumps(report, indent=2).encode() + b"\n"])


def _table(found: Estimate) -> Table:
    counts = found.counts
    table = Table("draft token", "accepted", "of drafts", "right where all before are")
    rows = zip(counts.accepted_per_position, counts.conditional_accuracy, strict=True)
    for position, (accepted, accuracy) in enumerate(rows, start=1):
        table.add_row(str(position), f"{accepted:,}", f"{accepted / counts.drafts:.1%}", f"{accuracy:.1%}")
    error = f" ± {found.standard_error:.3f}" if found.samples > 1 else ""
    table.caption = (
        f"acceptance length {counts.acceptance_length:.3f}{error}: {counts.drafts:,} drafts, {counts.tokens:,} tokens, "
        f"{found.answers:,} answers"
    )
    return table
