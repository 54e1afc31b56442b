"""One turn of bench.train: some steps over one of the two data paths; prints one line of JSON.

`rate` tokens/s from the first batch on, `waiting` share of that time, `first` seconds until that batch, and `batches`:
for each, its number of tokens and their sum, so that two turns can be seen to have trained on the same.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from speculators.models.eagle3 import Eagle3DraftModel
from speculators.models.eagle3.data import shift_batch
from speculators.train.dataloader import create_train_val_loaders
from speculators.train.trainer import Trainer

from pipeline.train import condition, run
from pipeline.train.draft import build
from pipeline.train.job import Job, settle
from pipeline.train.kept import Kept
from pipeline.train.progress import TrainProgress
from pipeline.train.settings import parse

SHARE, PREFETCH = 0.9, 4
"""speculators' defaults: samples that train, and batches that each worker makes ahead (train/config/schema.py)"""


class Timed:
    """A loader, and how long its batches are waited for."""

    def __init__(self, loader: Any) -> None:
        """Nothing is read yet."""
        self._loader = loader
        self.batch_sampler = loader.batch_sampler
        self.batches: list[list[int]] = []
        self.waits: list[float] = []
        self.began = 0.0
        """when the first batch was there"""

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._loader)
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                return
            there = time.perf_counter()
            self.waits.append(there - asked)
            self.began = self.began or there
            rows = batch["document_ids"] >= 0
            self.batches.append([int(rows.sum()), int(batch["input_ids"][rows].sum())])
            yield batch


def main(argv: list[str]) -> int:
    """Train and print what was measured."""
    flags = argparse.ArgumentParser(prog="python -m bench.train_turn", description=__doc__.split("\n")[0])
    for name in ("store", "model-path", "exported"):
        flags.add_argument(f"--{name}", type=Path, required=True)
    for name in ("steps", "batch-tokens", "draft-vocab-size", "workers"):
        flags.add_argument(f"--{name}", type=int, required=True)
    flags.add_argument("--way", choices=("store", "speculators"), required=True)
    given = flags.parse_args(argv)
    job = job_of(given)
    draft = build(job.config, job.vocabulary, job.target, job.settings)
    trainer = (ours if given.way == "store" else theirs)(job, draft, given)
    timed = trainer.train_loader = Timed(trainer.train_loader)
    trainer.train_epoch(0)
    seconds = time.perf_counter() - timed.began
    assert len(timed.batches) == given.steps, f"an epoch has {len(timed.batches)} steps only"
    measured = {
        "rate": sum(tokens for tokens, _ in timed.batches) / seconds,
        "waiting": sum(timed.waits[1:]) / seconds,
        "first": timed.waits[0],
        "batches": timed.batches,
    }
    print(json.dumps(measured))
    return 0


def job_of(given: argparse.Namespace) -> Job:
    """The plan of both; they train on the samples that speculators' split gives, its first ones."""
    flags = {
        "store": given.store,
        "model-path": given.model_path,
        "output-dir": given.exported.parent / "out",
        "draft-vocab-size": given.draft_vocab_size,
        "batch-tokens": given.batch_tokens,
        "max-steps": given.steps,
        "epochs": 1,
    }
    job = settle(parse([f"--{name}={value}" for name, value in flags.items()]))
    return replace(job, training=list(range(int(len(job.dataset) * SHARE))))


def ours(job: Job, draft: Eagle3DraftModel, given: argparse.Namespace) -> Trainer:
    """Ours, with all that it does in a step."""
    condition.apply(draft, condition.measure(job.dataset, job.training), start=True)
    nowhere = Path(os.devnull)
    progress = TrainProgress(sys.stderr, nowhere, steps=job.steps, ttt_steps=job.settings.ttt_steps, shown=False)
    return run._trainer(job, draft, progress)


def theirs(job: Job, draft: Eagle3DraftModel, given: argparse.Namespace) -> Trainer:
    """Speculators', as its own command sets it up."""
    training, _ = create_train_val_loaders(
        data_path=str(given.exported),
        total_seq_len=given.batch_tokens,
        hidden_states_dtype=job.dtype,
        transfer=None,
        vllm_endpoint="",
        on_missing="raise",
        verifier_name_or_path=str(job.target_folder),
        request_timeout=None,
        max_retries=0,
        generation_validation_retries=0,
        max_consecutive_generation_failures=1,
        hidden_size=job.manifest["hidden_size"],
        num_target_layers=len(job.layers),
        num_workers=given.workers,
        prefetch_factor=PREFETCH,
        preprocess=shift_batch,
        train_data_ratio=SHARE,
        max_train_batches=given.steps,
        seed=job.settings.seed,
    )
    return Trainer(draft, run._config(job, Kept(given.exported.parent / "none", 1)), training, None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
