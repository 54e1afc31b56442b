"""Training itself, in each of its processes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from loguru import logger as loguru_logger
from speculators.models.eagle3 import Eagle3DraftModel
from speculators.train.distributed import get_rank, maybe_destroy_distributed, maybe_setup_distributed
from speculators.train.logger import setup_metric_logger
from speculators.train.trainer import TrainerConfig
from speculators.utils.loading import load_model_layers
from transformers.utils import logging as transformers_logging

from pipeline.train import condition
from pipeline.train.acceptance import Choices
from pipeline.train.backend import StoreDataset, StoreTransfer
from pipeline.train.divergence import kl_div
from pipeline.train.draft import build
from pipeline.train.job import Job
from pipeline.train.kept import Kept
from pipeline.train.loader import Collate, Loader
from pipeline.train.progress import TrainProgress
from pipeline.train.trainer import Cadence, DraftTrainer

Json = dict[str, Any]
_BLOCK = 128
"""flex attention's: speculators' masks for it are of whole blocks (eagle3/attention.py)"""


def run(job: Job) -> Json:
    """Train to the end, from the newest checkpoint if there is one.

    Returns:
        What was measured: `validations`, `best`, `steps`, `tokens_per_second`, `seconds` by phase, `parameters`.

    Raises:
        UserError: see docs/architecture.md for the codes.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, a checkpoint written.
    """
    settings, logs = job.settings, job.settings.output_dir / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with _processes(), _logging(settings.logger_names, logs):
        events = logs / "events.jsonl" if get_rank() == 0 else Path(os.devnull)
        shown = get_rank() == 0 and sys.stderr.isatty()
        progress = TrainProgress(sys.stderr, events, steps=job.steps, ttt_steps=settings.ttt_steps, shown=shown)
        draft = build(job.config, job.vocabulary, job.target, settings)
        # A norm before the projection does the scaling.
        if not settings.norm_before_fc:
            begins = settings.start == "regression" and not settings.init_from
            found = condition.measure(job.dataset, job.training, settings.state_noise)
            condition.apply(draft, found, start=begins, noise=settings.state_noise)
        with progress:
            trainer = _trainer(job, draft, progress)
            progress.event("start", step=trainer.position.step, steps=job.steps, processes=settings.nproc)
            progress.begin(trainer.position.step)
            trainer.run_training()
        return _measured(trainer, draft, progress)


def _trainer(job: Job, draft: Eagle3DraftModel, progress: TrainProgress) -> DraftTrainer:
    settings = job.settings
    # The trainer looks for checkpoints of its own form there and finds none.
    kept = Kept(settings.output_dir, settings.keep)
    choices = Choices(draft.verifier_norm, _head(job))
    cadence = Cadence(settings.checkpoint_steps, 60 * settings.checkpoint_minutes)
    loaders = _loader(job, validation=False), _loader(job, validation=True)
    warmup = round(job.steps * settings.ttt_warmup_share)
    return DraftTrainer(draft, _config(job, kept), loaders, choices, kept, cadence, job.identity, progress, warmup)


def _config(job: Job, kept: Kept) -> TrainerConfig:
    settings = job.settings
    call, validate = Eagle3DraftModel.get_trainer_kwargs(
        loss_fn=settings.loss,
        loss_implementation="fused" if job.device == "cuda" else "eager",
        ttt_steps=settings.ttt_steps,
        ttt_step_loss_decay=settings.ttt_decay,
    )
    if job.device == "cpu":
        for arguments in (call, validate):
            losses = arguments["loss_config"]
            arguments["loss_config"] = losses | {
                name: (kl_div, weight) for name, (_, weight) in losses.items() if name == "kl_div"
            }
    return TrainerConfig(
        lr=settings.learning_rate,
        muon_lr=settings.learning_rate,
        num_epochs=settings.epochs,
        max_steps=settings.max_steps,
        save_path=str(kept.folder),
        train_call_kwargs=call,
        val_call_kwargs=validate,
        optimizer=settings.optimizer,
        weight_decay=settings.weight_decay,
        scheduler_type=settings.schedule,
        scheduler_warmup_steps=round(job.steps * settings.warmup_share),
        scheduler_total_steps=job.steps,
        hidden_states_dtype=job.dtype,
        log_freq=settings.log_every,
    )


def _loader(job: Job, *, validation: bool) -> Loader:
    settings = job.settings
    batches = job.batches(get_rank(), validation=validation)
    numbers = job.validation if validation else job.training
    dataset = StoreDataset(StoreTransfer(job.dataset), numbers, settings.batch_tokens, job.dtype)
    rows = None
    if job.device == "cuda" or job.attention == "flex":
        most = batches.most_rows(1 if validation else settings.epochs)
        rows = -(-most // _BLOCK) * _BLOCK
    collate = Collate(dataset, job.manifest["hidden_size"], len(job.layers), settings.ttt_steps, rows)
    return Loader(dataset, batches, collate)


def _head(job: Job) -> torch.Tensor:
    """The target's output layer; its embeddings where it has none of its own."""
    found = load_model_layers(["lm_head.weight", "embed_tokens.weight"], str(job.target_folder))
    head: torch.Tensor = found.get("lm_head.weight", found.get("embed_tokens.weight"))
    return head.float()


def _measured(trainer: DraftTrainer, draft: Eagle3DraftModel, progress: TrainProgress) -> Json:
    sizes = {True: 0, False: 0}
    for parameter in draft.parameters():
        sizes[parameter.requires_grad] += parameter.numel()
    return {
        "steps": trainer.position.step,
        "best": trainer.best,
        "validations": trainer.history,
        "tokens_per_second": progress.tokens / progress.seconds if progress.seconds else None,
        "seconds": {phase: round(seconds, 3) for phase, seconds in progress.phases.items()},
        "parameters": {"trained": sizes[True], "frozen": sizes[False]},
    }


@contextmanager
def _processes() -> Iterator[None]:
    maybe_setup_distributed()
    try:
        yield
    finally:
        maybe_destroy_distributed()


@contextmanager
def _logging(loggers: list[str], logs: Path) -> Iterator[None]:
    """What libraries have to say goes to logs/train.log, metrics to the loggers asked for."""
    os.environ["TRACKIO_DIR"] = str(logs.absolute() / "trackio")
    loguru_logger.disable("speculators")
    transformers_logging.disable_progress_bar()
    setup_metric_logger(loggers, run_name=logs.absolute().parent.name, output_dir=logs / "tensorboard")
    handler = logging.FileHandler(logs / "train.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.captureWarnings(True)
    told = [logging.getLogger(name) for name in ("speculators", "py.warnings")]
    for logger in told:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for logger in told:
            logger.removeHandler(handler)
            logger.propagate = True
        handler.close()
        for metric_handler in logging.getLogger("speculators.metrics").handlers:
            metric_handler.close()
