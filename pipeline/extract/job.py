"""Everything a run decides before an engine starts: target, layers, plan, identity, size. Imports no torch."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from pipeline.errors import NoSamplesError, NoSpaceError, SettingsError
from pipeline.extract.digests import model_digest, stack_identity
from pipeline.extract.engines.protocol import EngineOptions
from pipeline.extract.layers import check_layer_ids, default_layer_ids
from pipeline.extract.plan import Plan, build_plan
from pipeline.extract.settings import ExtractSettings
from pipeline.extract.target import Target, locate_target, read_target
from pipeline.store.manifest import store_identity
from pipeline.store.spec import PLAIN_STORAGES

_ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_SCALE_BYTES = 4
"""a float32 for each row and layer of fp8"""
_ROW_OVERHEAD = 9
"""bytes a row beside its states: an int64 token id and a uint8 of loss mask"""
_SAMPLE_OVERHEAD = 256
"""bytes a sample, upwards rounded: its record in the sidecar and its offset"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run, settled."""

    settings: ExtractSettings
    target: Target
    layer_ids: tuple[int, ...]
    dtype: str
    plan: Plan

    @property
    def tokens(self) -> int:
        """Rows that the finished store has, if nothing is rejected on the way."""
        return sum(unit.tokens for unit in self.plan.units)

    @property
    def samples(self) -> int:
        """Samples in units."""
        return sum(len(unit.samples) for unit in self.plan.units)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of states a token on the disk: layers x hidden size x size of an item.

        Of bf16-zstd the most that it can be: how far it goes below is known when it is written.
        """
        if self.storage == "fp8":
            return len(self.layer_ids) * (self.target.hidden_size + _SCALE_BYTES)
        return len(self.layer_ids) * self.target.hidden_size * _ITEM_BYTES[self.dtype]

    @property
    def storage(self) -> str:
        """How the states will lie on the disk: as asked for; other than bfloat16 ones stay as they are."""
        return self.settings.storage if self.dtype == "bfloat16" else PLAIN_STORAGES[self.dtype]

    def bytes_of(self, units: set[int]) -> int:
        """What these units take on disk, rounded up."""
        chosen = [unit for unit in self.plan.units if unit.index in units]
        rows = sum(unit.tokens for unit in chosen)
        return rows * (self.bytes_per_token + _ROW_OVERHEAD) + sum(len(unit.samples) for unit in chosen) * (
            _SAMPLE_OVERHEAD
        )

    def engine_options(self) -> EngineOptions:
        """What the engine is told."""
        settings = self.settings
        return EngineOptions(
            target=self.target,
            layer_ids=self.layer_ids,
            dtype=self.dtype,
            max_seq_len=settings.max_seq_len,
            batch_size=settings.batch_size,
            token_budget=settings.token_budget,
            tp_size=settings.tp_size,
            gpu_memory_utilization=settings.gpu_memory_utilization,
            trust_remote_code=settings.trust_remote_code,
            unit_deadline=settings.unit_deadline,
        )

    def identity(self) -> dict[str, Any]:
        """What a store must have been made with to be continued by this run; reads the target's files and stack.json.

        Memory settings are not in it: they do not change what is computed.
        """
        settings = self.settings
        return store_identity(
            engine=settings.engine,
            dtype=self.dtype,
            storage=self.storage,
            hidden_size=self.target.hidden_size,
            num_layers=self.target.num_layers,
            vocab_size=self.target.vocab_size,
            output_layer_ids=self.layer_ids,
            digests={
                "data": self.plan.data_sha256,
                "model": model_digest(self.target.folder),
                "stack": stack_identity()["digest"],
                "plan": self.plan.digest,
            },
            settings={
                "batch_size": settings.batch_size,
                "token_budget": settings.token_budget,
                "max_seq_len": settings.max_seq_len,
                "over_long": settings.over_long,
                "tp_size": settings.tp_size,
            },
        )


def settle(settings: ExtractSettings) -> Job:
    """Read the target's shape and plan the data.

    Raises:
        InputError: target or data cannot be read.
        SettingsError: layers or lengths the target does not have.
    """
    target = read_target(locate_target(settings.model_path, config_only=settings.dry_run))
    target.check_length(settings.max_seq_len)
    layer_ids = settings.layer_ids or default_layer_ids(target.num_layers)
    check_layer_ids(layer_ids, target.num_layers)
    plan = build_plan(
        settings.prepared_data,
        batch_size=settings.batch_size,
        token_budget=settings.token_budget,
        max_seq_len=settings.max_seq_len,
        over_long=settings.over_long,
        vocab_size=target.vocab_size,
    )
    dtype = target.computing_dtype(settings.dtype)
    if settings.storage != "bf16" and dtype != "bfloat16":
        raise SettingsError(f"--storage {settings.storage} takes bfloat16 states, and these are {dtype}: leave it out")
    return Job(settings=settings, target=target, layer_ids=layer_ids, dtype=dtype, plan=plan)


def check_usable(job: Job) -> None:
    """Refuse a plan with nothing in it.

    Raises:
        NoSamplesError: every sample was rejected, or there is none.
    """
    if not job.plan.units:
        first = f", the first: {job.plan.rejected[0].reason}" if job.plan.rejected else ""
        raise NoSamplesError(
            f"{job.settings.prepared_data} has no usable sample: {len(job.plan.rejected)} of "
            f"{job.plan.input_samples} rejected{first}"
        )


def check_space(job: Job, units: set[int]) -> None:
    """Refuse to start what the disk cannot hold.

    Raises:
        NoSpaceError: with bytes needed and free.
    """
    needed, free = job.bytes_of(units), free_bytes(job.settings.output_dir)
    if needed > free:
        raise NoSpaceError(
            f"{job.settings.output_dir} needs {decimal(needed)} more and its disk has {decimal(free)} free: "
            "free some, or name an --output-dir on a larger disk"
        )


def free_bytes(folder: Path) -> int:
    """Free bytes where a folder is, or would be made."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    return shutil.disk_usage(there).free
