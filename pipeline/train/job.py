"""A run's plan, settled before anything expensive starts: what fits what, samples, vocabulary, number of steps."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from speculators.losses import resolve_loss_config
from speculators.models.eagle3 import Eagle3SpeculatorConfig

from pipeline.errors import FitError, SettingsError
from pipeline.extract.digests import model_digest
from pipeline.extract.target import locate_target, read_target
from pipeline.store.dataset import HiddenStateDataset
from pipeline.store.manifest import read_manifest
from pipeline.train import fit, vocabulary
from pipeline.train.batches import StepBatches
from pipeline.train.draft import check_start, draft_config, read_config, read_weights
from pipeline.train.settings import TrainSettings
from pipeline.train.split import split
from pipeline.train.vocabulary import Vocabulary

Json = dict[str, Any]
_OF_THE_RUN_ONLY = {
    *("store", "model_path", "output_dir", "init_from", "draft_config", "draft_vocab_size", "nproc", "keep"),
    *("checkpoint_steps", "checkpoint_minutes", "log_every", "loggers", "dry_run", "attention", "dtype"),
}
"""settings that change no weight, or stand in the identity in another form"""


@dataclass(frozen=True)
class Job:
    """Everything a run needs, the weights apart."""

    settings: TrainSettings
    target: Json
    """the content of the target's config.json"""
    target_folder: Path
    model_sha256: str
    manifest: Json
    """the store's"""
    dataset: HiddenStateDataset
    training: list[int]
    """numbers of the samples that train"""
    validation: list[int]
    """numbers of those that choose the best checkpoint"""
    vocabulary: Vocabulary
    vocabulary_report: Json
    config: Eagle3SpeculatorConfig
    attention: str
    dtype: torch.dtype

    @property
    def layers(self) -> list[int]:
        """Auxiliary layers, in input numbering."""
        return fit.auxiliary_layers(self.manifest)

    @property
    def device(self) -> str:
        """What the draft trains on."""
        return "cuda" if torch.cuda.is_available() else "cpu"

    def batches(self, rank: int = 0, *, validation: bool = False) -> StepBatches:
        """The steps' samples; validation keeps one order."""
        numbers = self.validation if validation else self.training
        return StepBatches(
            self.dataset.rows[numbers].tolist(),
            batch_tokens=self.settings.batch_tokens,
            seed=self.settings.seed,
            shuffle=not validation,
            rank=rank,
            processes=self.settings.nproc,
        )

    @cached_property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        batches = self.batches()
        total = sum(len(batches.steps(epoch)) for epoch in range(self.settings.epochs))
        return min(total, self.settings.max_steps or total)

    def tokens(self, numbers: list[int]) -> int:
        """Of some samples."""
        return int(self.dataset.rows[numbers].sum())

    @cached_property
    def identity(self) -> Json:
        """What two runs must have in common for one to go on where the other ended."""
        settings = {name: value for name, value in asdict(self.settings).items() if name not in _OF_THE_RUN_ONLY}
        start = self.settings.init_from
        weights = hashlib.sha256((start / "model.safetensors").read_bytes()).hexdigest() if start else None
        return {
            "store_digest": self.manifest["store_digest"],
            "model": self.model_sha256,
            "vocabulary": self.vocabulary.digest,
            "draft": _shape(self.config),
            "init_from": weights,
            "settings": settings,
            "device": self.device,
            "attention": self.attention,
            "dtype": str(self.dtype).removeprefix("torch."),
        }


def settle(settings: TrainSettings, *, written: Path | None = None) -> Job:
    """Check everything and decide everything that needs no weights.

    Args:
        settings: as given.
        written: the folder of a vocabulary that another process has just written; None: count the training samples.

    Raises:
        UserError: see docs/architecture.md for the codes.
    """
    check_choices(settings)
    folder = locate_target(settings.model_path, config_only=False)
    target, shape = read_config(folder), read_target(folder)
    manifest = read_manifest(settings.store)
    model_sha256 = model_digest(folder)
    fit.check_store(settings.store, manifest, shape, model_sha256)
    dataset = HiddenStateDataset(settings.store, check="lengths")
    training, validation = split(dataset.index.ids, settings.seed, settings.validation_share)
    words, report = _vocabulary(settings, dataset, training.tolist(), shape.vocab_size, written)
    attention = attention_of(settings.attention)
    config = draft_config(target, settings, fit.auxiliary_layers(manifest), words.size, attention)
    if settings.init_from:
        check_start(settings.init_from, config)
    job = Job(
        settings=settings,
        target=target,
        target_folder=folder,
        model_sha256=model_sha256,
        manifest=manifest,
        dataset=dataset,
        training=training.tolist(),
        validation=validation.tolist(),
        vocabulary=words,
        vocabulary_report=report,
        config=config,
        attention=attention,
        dtype=dtype_of(settings.dtype),
    )
    job.batches(validation=True)  # refuses what does not fit into a step, as the other does
    job.steps  # noqa: B018
    job.identity  # noqa: B018 - now: to build a model fills fields of its config in
    return job


def _vocabulary(
    settings: TrainSettings, dataset: HiddenStateDataset, training: list[int], vocab_size: int, written: Path | None
) -> tuple[Vocabulary, Json]:
    size = _size(settings, vocab_size)
    if written is not None:
        return vocabulary.read(written, size)
    counts = vocabulary.count_tokens(dataset, training, vocab_size)
    words = _drafts_own(settings.init_from, vocab_size) if settings.init_from else vocabulary.choose(counts, size)
    made_from = {
        "store_digest": dataset.index.manifest["store_digest"],
        "training_samples": len(training),
        "seed": settings.seed,
        "validation_share": settings.validation_share,
        "init_from": str(settings.init_from) if settings.init_from else None,
    }
    return words, vocabulary.report(words, counts, made_from)


def _size(settings: TrainSettings, vocab_size: int) -> int:
    """The draft's vocabulary's: as asked for, or that of the draft to begin with."""
    asked = settings.draft_vocab_size
    if asked is not None and asked > vocab_size:
        raise FitError(f"--draft-vocab-size {asked} is more than the target's vocabulary has, vocab_size {vocab_size}")
    if not settings.init_from:
        return asked or min(vocabulary.DEFAULT_SIZE, vocab_size)
    there = read_config(settings.init_from).get("draft_vocab_size")
    if asked is not None and asked != there:
        raise FitError(f"--init-from {settings.init_from}: draft_vocab_size is {there} there, {asked} here")
    return int(there or 0)


def _drafts_own(folder: Path, vocab_size: int) -> Vocabulary:
    """The map of the draft to begin with: its output layer's rows are that map's tokens, whatever the new data has."""
    size = read_config(folder).get("draft_vocab_size")
    weights = read_weights(folder)
    if "d2t" not in weights:  # of a draft that can propose every token
        weights |= {"d2t": torch.zeros(vocab_size, dtype=torch.int64), "t2d": torch.ones(vocab_size, dtype=torch.bool)}
    found = Vocabulary(weights["d2t"].long(), weights["t2d"].bool())
    if found.size != size:
        raise FitError(f"--init-from {folder}: draft_vocab_size is {size}, its vocabulary map d2t has {found.size}")
    if len(found.t2d) != vocab_size:
        raise FitError(
            f"--init-from {folder}: its vocabulary map t2d has {len(found.t2d)} tokens, the target {vocab_size}"
        )
    if not found.consistent:
        raise FitError(f"--init-from {folder}: its vocabulary maps d2t and t2d name different tokens")
    return found


def check_choices(settings: TrainSettings) -> None:
    """Refuse what this machine or library cannot do.

    Raises:
        SettingsError: names it.
    """
    try:
        resolve_loss_config(settings.loss, "eager")
    except ValueError as error:
        raise SettingsError(f"--loss: {error}") from error
    gpus = torch.cuda.device_count()
    if gpus and settings.nproc > gpus:
        raise SettingsError(f"--nproc {settings.nproc} is more than the {gpus} GPUs of this machine")


def attention_of(asked: str) -> str:
    """The attention backend to use.

    Raises:
        SettingsError: it is not to be had.
    """
    if asked == "auto":
        return "flex" if torch.cuda.is_available() else "sdpa"
    if asked == "flash":
        raise SettingsError("--attention flash: flash-attn has no mask for training-time test: use flex or sdpa")
    return asked


def dtype_of(asked: str) -> torch.dtype:
    """The dtype to compute in; a CPU that multiplies bfloat16 itself is four to five times as fast with it."""
    if asked == "auto":
        # Tiles are Intel's way, dot products of 512 bits AMD's too; torch has no public name for either.
        on_cpu = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
        return torch.bfloat16 if torch.cuda.is_available() or on_cpu else torch.float32
    chosen: torch.dtype = getattr(torch, asked)
    return chosen


def _shape(config: Eagle3SpeculatorConfig) -> Json:
    """The draft's config without what does not change its weights."""
    content: Json = config.to_dict()
    content.pop("speculators_config", None)
    content.pop("transformers_version", None)
    return content
