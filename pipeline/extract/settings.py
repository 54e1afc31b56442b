"""The flags of the `extract` stage, checked before anything expensive starts.

The flags are the original system's: a command line that drove it drives this one.
"""

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
from pipeline.extract.layers import parse_layer_ids

Dtype = Literal["auto", "bfloat16", "float16", "float32"]
OverLong = Literal["reject", "cut"]
EngineName = Literal["speculators", "reference"]
StorageName = Literal["bf16", "bf16-zstd", "fp8"]


@dataclass(frozen=True, kw_only=True)
class ExtractSettings:
    """What to extract, from which target, into which store. Each text below a field is also its --help."""

    model_path: Path
    """the target's checkpoint folder"""
    prepared_data: Path
    """tokenized.jsonl, as written by prepare"""
    output_dir: Path
    """the store's folder: made if missing, completed if it was interrupted"""
    batch_size: int = 32
    """most samples in a work unit"""
    max_seq_len: int = 2048
    """most tokens in a sample"""
    tp_size: int = 1
    """tensor parallelism: over how many devices the target is split"""
    gpu_memory_utilization: float = 0.8
    """share of each GPU's memory that vLLM may take, above 0 and at most 1"""
    layer_ids: tuple[int, ...] | None = None
    """decoder layers to capture, the state after layer k, 0-based; default: 1, n//2-1, n-4 and n-1 of n layers"""
    token_budget: int = 8192
    """most tokens in a work unit of more than one sample"""
    dtype: Dtype = "auto"
    """what the target computes in and the states are stored as; auto: the checkpoint's own"""
    unit_deadline: int = 900
    """seconds a work unit may take before its engine counts as hung and is started again"""
    storage: StorageName = "bf16"
    """how states lie on the disk: as computed; bf16-zstd: compressed without loss; fp8: half the bytes, rounded"""
    trust_remote_code: bool = False
    """run Python code that comes with the checkpoint"""
    over_long: OverLong = "reject"
    """what happens to a sample of more than --max-seq-len tokens"""
    engine: EngineName = "speculators"
    """speculators: patched speculators on vLLM; reference: transformers, one sample at a time"""
    recheck: bool = False
    """before going on, compute the checksums of finished units again instead of looking at sizes"""
    repair: bool = False
    """find what is damaged in a store, finished or not, and extract that again, alone"""
    dry_run: bool = False
    """print the plan, the steps and the bytes, and write nothing"""

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_seq_len", "tp_size", "token_budget", "unit_deadline"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{_flag(name)} must be at least 1, not {getattr(self, name)}")
        share = self.gpu_memory_utilization
        if not (math.isfinite(share) and 0 < share <= 1):
            raise SettingsError(f"--gpu-memory-utilization must be above 0 and at most 1, not {share}")


def parse(argv: Sequence[str]) -> ExtractSettings:
    """The settings a command line gives.

    Args:
        argv: the flags, without the stage's name.

    Raises:
        SettingsError: a value out of its range.
        SystemExit: with 2 for an unknown flag or a malformed value, with 0 after --help.
    """
    given = vars(parser().parse_args(argv))
    if given["layer_ids"] is not None:
        given["layer_ids"] = parse_layer_ids(given["layer_ids"])
    return ExtractSettings(**given)


def parser() -> argparse.ArgumentParser:
    """The stage's parser; its help and defaults are those of `ExtractSettings`."""
    made = argparse.ArgumentParser(
        prog="python -m pipeline extract",
        description="Hidden states of tokenized samples, from the target into a store.",
        allow_abbrev=False,
    )
    kinds: dict[str, dict[str, Any]] = {
        "model_path": {"type": Path, "required": True},
        "prepared_data": {"type": Path, "required": True},
        "output_dir": {"type": Path, "required": True},
        "gpu_memory_utilization": {"type": float},
        "layer_ids": {"nargs": "+", "metavar": "K"},
        "dtype": {"choices": get_args(Dtype)},
        "storage": {"choices": get_args(StorageName)},
        "trust_remote_code": {"action": "store_true"},
        "over_long": {"choices": get_args(OverLong)},
        "engine": {"choices": get_args(EngineName)},
        "recheck": {"action": "store_true"},
        "repair": {"action": "store_true"},
        "dry_run": {"action": "store_true"},
    }
    meanings = _field_texts()
    for field in fields(ExtractSettings):
        how = kinds.get(field.name, {"type": int})
        if not how.get("required"):
            how["default"] = field.default
        shown = "" if how.get("required") or field.default in (None, False) else " (default: %(default)s)"
        made.add_argument(_flag(field.name), help=meanings[field.name] + shown, **how)
    return made


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _field_texts() -> dict[str, str]:
    """The string under each field, read from the source so that it is written once."""
    (definition,) = ast.parse(inspect.getsource(ExtractSettings)).body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101 - for the type checker; getsource of a class is a class
    texts = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(field.target, ast.Name):
            texts[field.target.id] = ast.literal_eval(text.value)
    return texts
