"""The trainer of speculators, with what it cannot do.

That is: exact checkpoints at any step, going on at the very batch, losses weighted by tokens over all processes, and
the best checkpoint chosen by acceptance.
"""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from speculators.models.eagle3 import Eagle3DraftModel
from speculators.train.trainer import Trainer, TrainerConfig

from pipeline.train import checkpoint
from pipeline.train.acceptance import Acceptance, Choices, count
from pipeline.train.kept import Kept
from pipeline.train.loader import Batch, Loader
from pipeline.train.progress import TrainProgress
from pipeline.train.weigh import weigh_by_rows

Json = dict[str, Any]


@dataclass
class Position:
    """Where training is."""

    step: int = 0
    """optimizer steps done"""
    epoch: int = 0
    """that is under way"""
    batch: int = 0
    """batches of it that are done"""


@dataclass(frozen=True)
class Cadence:
    """When checkpoints are written, besides at every epoch's end."""

    steps: int
    """after so many steps; 0: not"""
    seconds: float
    """after so long without one; 0: not"""


class DraftTrainer(Trainer):
    """Trains a draft from where its newest checkpoint is to the end."""

    def __init__(  # noqa: PLR0913, PLR0917 - its parts
        self,
        draft: Eagle3DraftModel,
        config: TrainerConfig,
        loaders: tuple[Loader, Loader],
        choices: Choices,
        kept: Kept,
        cadence: Cadence,
        identity: Json,
        progress: TrainProgress,
        ttt_warmup: int = 0,
    ) -> None:
        """Set up, and put back what the newest checkpoint holds.

        Args:
            draft: with the weights a new run begins with.
            config: speculators' settings of a run.
            loaders: of training and of validation batches.
            choices: the target's own, for validation.
            kept: the run's checkpoints.
            cadence: when to write some.
            identity: what a run must have in common with the one that it goes on with; goes into each checkpoint.
            progress: is told of every step.
            ttt_warmup: steps in which only one token is proposed.

        Raises:
            CheckpointError: the newest checkpoint is damaged.
        """
        self.draft, self._kept, self._cadence = draft, kept, cadence
        self._identity, self._progress, self._choices = identity, progress, choices
        self._ttt_steps, self._ttt_warmup = config.train_call_kwargs["ttt_steps"], ttt_warmup
        self.position = Position()
        self.best: Json | None = None
        self.history: list[Json] = []
        self._stop = False
        self._seed = torch.initial_seed()  # the run's: the draft was made with it
        self._saved = time.monotonic()
        super().__init__(draft, config, *loaders)
        weigh_by_rows(draft)
        self._go_on()

    @property
    def max_steps(self) -> int | None:
        """Where to end, if not after the last epoch."""
        return self.config.max_steps

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.position.epoch >= self.config.num_epochs or self.position.step == self.max_steps

    def run_training(self) -> None:
        """Train to the end; a signal ends it after the step under way, with a checkpoint.

        Raises:
            KeyboardInterrupt: it was ended by a signal.
        """
        with self._signals_stop():
            if not self.position.step and not self._kept.steps():
                self._save()
            while not self.finished:
                self.train_epoch(self.position.epoch, step_callback=self._after_step)
                self._end_epoch()

    def train_epoch(self, epoch: int, *, step_callback: Callable[[], None] | None = None) -> None:
        """Speculators' epoch, from the batch that training is at."""
        self.train_loader.batch_sampler.set_epoch(epoch)
        self._epoch_steps = len(self.train_loader)
        self._begin_step()
        super().train_epoch(epoch, step_callback=step_callback)

    def _with_bar(self, loader: Loader, epoch: int) -> Loader:
        return loader

    def _begin_step(self) -> None:
        """What the next optimizer step is taken with."""
        warms_up = self.position.step < self._ttt_warmup
        self.config.train_call_kwargs["ttt_steps"] = 1 if warms_up else self._ttt_steps
        if self.is_distributed:
            # Each process has its own noise, and again the same after a kill: a checkpoint holds one generator's state.
            name = f"{self._seed} {self.position.step} {self.rank}"
            torch.manual_seed(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest(), "big"))

    def _prepare_resume_skip(self, epoch: int) -> int:
        self.train_loader.batch_sampler.skip(self.position.batch)
        return self.position.batch

    def _after_step(self) -> None:
        self.position.step += 1
        self.position.batch += 1
        self._begin_step()
        if self.position.batch == self._epoch_steps or self.position.step == self.max_steps:
            return  # the epoch's end writes one
        late = 0 < self._cadence.seconds < time.monotonic() - self._saved
        if self._stop or late or (self._cadence.steps and self.position.step % self._cadence.steps == 0):
            self._save()
        if self._stop:
            raise KeyboardInterrupt

    def _end_epoch(self) -> None:
        if self.position.batch == self._epoch_steps:
            self.position.epoch, self.position.batch = self.position.epoch + 1, 0
        found = self._validate()
        self.history.append(found)
        if self.best is None or found["acceptance_length"] > self.best["acceptance_length"]:
            self.best = found
        self._save()

    @torch.no_grad()
    def _validate(self) -> Json:
        """Acceptance and loss over the held-out samples."""
        self.model.eval()
        steps = self.config.val_call_kwargs["ttt_steps"]
        counts = torch.zeros(2, steps, dtype=torch.int64, device=self.device)
        losses = torch.zeros(2, dtype=torch.float64, device=self.device)
        self._progress.validating(len(self.val_loader))
        for number, batch in enumerate(self.val_loader):
            found, loss = self._validate_batch(number, batch)
            counts, losses = counts + found, losses + loss
        self._choices.complete()
        if self.is_distributed:
            dist.all_reduce(counts)
            dist.all_reduce(losses)
        acceptance = Acceptance(*(tuple(row) for row in counts.tolist()))
        result: Json = {
            "step": self.position.step,
            "epoch": self.position.epoch,
            "acceptance_length": acceptance.length,
            "taken": acceptance.taken,
            "proposed": acceptance.proposed,
            "loss": float(losses[0] / losses[1].clamp(min=1)),
        }
        self._progress.validated(result)
        return result

    def _validate_batch(self, number: int, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        here = {name: value.to(self.device) for name, value in batch.items() if torch.is_tensor(value)}
        with torch.autocast(self.device_type, dtype=self.config.hidden_states_dtype):
            tokens, _, metrics = self.draft(**here, **self.config.val_call_kwargs)
        choices = self._choices.of(number, here["verifier_last_hidden_states"][0])
        offsets = self.draft.d2t
        proposals = [ids[0] if offsets is None else ids[0] + offsets[ids[0]] for ids in tokens]
        counts = count(proposals, choices, here["loss_mask"][0].bool(), here["document_ids"][0])
        return counts, torch.stack([metrics["loss_sum"], metrics["loss_total"]]).double()

    def _save(self) -> None:
        """Write a checkpoint, by one process; the others have the same weights."""
        began = time.monotonic()
        if self.rank == 0:
            folder = self._kept.path(self.position.step)
            checkpoint.write(folder, self.draft, self.optimizers, self._state())
            self._kept.tidy(self.best["step"] if self.best else None)
        self._saved = time.monotonic()
        self._progress.saved(self.position.step, self._saved - began)

    def _state(self) -> Json:
        return {
            "position": vars(self.position),
            "schedulers": [scheduler.state_dict() for scheduler in self.schedulers],
            "identity": self._identity,
            "best": self.best,
            "validations": self.history,
        }

    def _go_on(self) -> None:
        folder = self._kept.last()
        if folder is None:
            return
        checkpoint.check(folder)
        state = checkpoint.read_state(folder)
        checkpoint.restore(folder, self.draft, self.optimizers, state)
        for scheduler, content in zip(self.schedulers, state["schedulers"], strict=True):
            scheduler.load_state_dict(content)
        self.position = Position(**state["position"])
        self.global_step = self.position.step
        self.best, self.history = state["best"], state["validations"]
        if self.rank == 0:
            self._kept.tidy(self.best["step"] if self.best else None)

    @contextmanager
    def _signals_stop(self) -> Iterator[None]:
        """SIGINT and SIGTERM end training after the step; the second time at once."""

        def stop(number: int, frame: Any) -> None:
            if self._stop:
                raise KeyboardInterrupt
            self._stop = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
