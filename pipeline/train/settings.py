"""The flags of the `train` stage, checked before anything expensive starts."""

from __future__ import annotations

import argparse
import ast
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from pipeline.errors import SettingsError

Attention = Literal["auto", "flex", "sdpa", "eager", "flash"]
Dtype = Literal["auto", "float32", "bfloat16"]
OptimizerName = Literal["adamw", "muon"]
Schedule = Literal["linear", "cosine", "none"]
Start = Literal["regression", "random"]
LOGGERS = ("tensorboard", "trackio")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """What to train, from which store, for which target, and where to. Each text below a field is also its --help."""

    store: Path
    """the store that `extract` made"""
    model_path: Path
    """the target's checkpoint folder"""
    output_dir: Path
    """where vocabulary, checkpoints and report go; training that was interrupted goes on there"""
    init_from: Path | None = None
    """a draft's checkpoint whose weights and vocabulary training begins with"""
    draft_config: Path | None = None
    """a JSON object of LlamaConfig's fields that replace those derived from the target, such as intermediate_size"""
    draft_layers: int = 1
    """decoder layers of the draft"""
    draft_vocab_size: int | None = None
    """tokens the draft can propose: the most frequent in the training data; default 32000, or the target's if fewer"""
    norm_before_fc: bool = False
    """normalise the auxiliary states before they are projected; no published EAGLE-3 checkpoint's form"""
    norm_output: bool = False
    """feed normalised states back from step to step; no published EAGLE-3 checkpoint's form"""
    start: Start = "regression"
    """regression: the projection of the auxiliary states begins as the best linear guess of the target's next last
    state, out of the training data; random: as initialised"""
    train_lm_head: bool = False
    """train the output layer too, which begins with the target's rows"""
    state_noise: float = 0.0
    """normal noise on the auxiliary states while training, relative to each dimension's root mean square: against
    learning few samples by heart"""
    validation_share: float = 0.1
    """share of the samples that are held out to choose the best checkpoint by"""
    seed: int = 0
    """of split, order and initial weights"""
    epochs: int = 10
    """passes over the training samples"""
    max_steps: int | None = None
    """end after this many optimizer steps"""
    batch_tokens: int = 8192
    """most tokens in an optimizer step, over all processes; every sample must fit"""
    learning_rate: float = 1e-4
    """highest learning rate of AdamW, and of Muon"""
    weight_decay: float = 0.01
    """of AdamW"""
    optimizer: OptimizerName = "adamw"
    """adamw, or muon for matrices and AdamW for all else"""
    schedule: Schedule = "cosine"
    """how the learning rate falls after its warmup"""
    warmup_share: float = 0.04
    """share of all steps in which the learning rate rises"""
    ttt_steps: int = 3
    """steps of training-time test: tokens the draft learns to propose one after the other"""
    ttt_warmup_share: float = 0.0
    """share of all steps in which only one token is proposed: a step takes a third of the time, and most of what the
    later tokens need is learnt too"""
    ttt_decay: float = 1.0
    """weight of each of these steps relative to the one before"""
    loss: str = "kl_div"
    """one of speculators' losses (kl_div, rkl, jsd, ce, tv, nla, lk_hybrid), or a JSON object of weights by loss"""
    attention: Attention = "auto"
    """flex, sdpa or eager; auto: flex on GPUs, sdpa on CPUs. flash is refused: it has no mask for training-time test"""
    dtype: Dtype = "auto"
    """what the draft computes in, its weights being float32; auto: bfloat16 on what multiplies it itself, or float32"""
    nproc: int = 1
    """processes, each with a GPU of its own if there are any"""
    checkpoint_steps: int = 0
    """write a checkpoint after every so many steps too; 0: not"""
    checkpoint_minutes: float = 15.0
    """write a checkpoint after so many minutes without one; 0: not"""
    keep: int = 2
    """checkpoints to keep besides the best and the untrained one"""
    log_every: int = 1
    """steps from one entry in the log to the next; each waits for the GPU"""
    loggers: str = ""
    """where metrics go besides logs/events.jsonl: tensorboard, trackio, or both with a comma"""
    dry_run: bool = False
    """print the plan with its memory and disk estimates, and write nothing"""

    def __post_init__(self) -> None:
        for name in ("draft_layers", "epochs", "batch_tokens", "ttt_steps", "nproc", "keep", "log_every"):
            _at_least(name, getattr(self, name), 1)
        for name in ("draft_vocab_size", "max_steps"):
            if getattr(self, name) is not None:
                _at_least(name, getattr(self, name), 1)
        for name in ("checkpoint_steps", "checkpoint_minutes", "weight_decay", "seed", "state_noise"):
            _at_least(name, getattr(self, name), 0)
        for name, low, high in (("validation_share", 0, 1), ("learning_rate", 0, math.inf), ("ttt_decay", 0, math.inf)):
            value = getattr(self, name)
            if not (math.isfinite(value) and low < value < high):
                raise SettingsError(
                    f"{_flag(name)} must be above {low}{f' and below {high}' * (high == 1)}, not {value}"
                )
        for name in ("warmup_share", "ttt_warmup_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingsError(f"{_flag(name)} must be between 0 and 1, not {getattr(self, name)}")
        if self.state_noise and self.norm_before_fc:
            raise SettingsError(
                "--state-noise is relative to states that --norm-before-fc normalises: give one of them"
            )
        if unknown := set(self.logger_names) - set(LOGGERS):
            raise SettingsError(f"--loggers knows {' and '.join(LOGGERS)}, not {', '.join(sorted(unknown))}")

    @property
    def logger_names(self) -> list[str]:
        """The loggers asked for."""
        return [name.strip() for name in self.loggers.split(",") if name.strip()]


def parse(argv: Sequence[str]) -> TrainSettings:
    """The settings a command line gives.

    Args:
        argv: the flags, without the stage's name.

    Raises:
        SettingsError: a value out of its range.
        SystemExit: with 2 for an unknown flag or a malformed value, with 0 after --help.
    """
    return TrainSettings(**vars(parser().parse_args(argv)))


_PATHS = ("store", "model_path", "output_dir", "init_from", "draft_config")
_KINDS: dict[str, dict[str, Any]] = {
    **{name: {"type": Path} for name in _PATHS},
    **{name: {"action": "store_true"} for name in ("norm_before_fc", "norm_output", "train_lm_head", "dry_run")},
    "attention": {"choices": get_args(Attention)},
    "dtype": {"choices": get_args(Dtype)},
    "optimizer": {"choices": get_args(OptimizerName)},
    "schedule": {"choices": get_args(Schedule)},
    "start": {"choices": get_args(Start)},
    "loss": {"type": str},
    "loggers": {"type": str},
}
_REQUIRED = ("store", "model_path", "output_dir")


def parser() -> argparse.ArgumentParser:
    """The stage's parser; its help and defaults are those of `TrainSettings`."""
    made = argparse.ArgumentParser(
        prog="python -m pipeline train", description="An EAGLE-3 draft out of a store.", allow_abbrev=False
    )
    meanings = _field_texts()
    for field in fields(TrainSettings):
        how = dict(_KINDS.get(field.name) or {"type": float if isinstance(field.default, float) else int})
        if field.name in _REQUIRED:
            how["required"] = True
        else:
            how["default"] = field.default
        silent = field.name in _REQUIRED or field.default in (None, False, "")
        shown = "" if silent else " (default: %(default)s)"
        made.add_argument(_flag(field.name), help=meanings[field.name] + shown, **how)
    return made


def _at_least(name: str, value: float, least: int) -> None:
    if not (math.isfinite(value) and value >= least):
        raise SettingsError(f"{_flag(name)} must be at least {least}, not {value}")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _field_texts() -> dict[str, str]:
    """The string under each field, read from the source so that it is written once."""
    (definition,) = ast.parse(inspect.getsource(TrainSettings)).body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101 - for the type checker; getsource of a class is a class
    texts = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(field.target, ast.Name):
            texts[field.target.id] = ast.literal_eval(text.value)
    return texts
