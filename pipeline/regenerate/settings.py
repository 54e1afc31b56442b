"""The flags of the `regenerate` stage, checked before anything expensive starts."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pipeline.errors import SettingsError
from pipeline.extract.settings import Dtype

LOWEST_TEMPERATURE = 0.01
"""vLLM takes anything lower, but for 0, as this: `_MAX_TEMP` in its sampling_params.py."""
MOST_TOP_K = 2**31 - 1
MOST_SEED = 2**63 - 1

Unfinished = Literal["reject", "keep"]


@dataclass(frozen=True, kw_only=True)
class RegenerateSettings:
    """What to answer, with which target, how to sample, where to; the meaning of each is its flag's `--help`."""

    input: list[Path]
    model_path: Path
    output_dir: Path
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    max_new_tokens: int = 1024
    unfinished: Unfinished = "reject"
    max_model_len: int | None = None
    batch_size: int = 64
    tp_size: int = 1
    dtype: Dtype = "auto"
    gpu_memory_utilization: float = 0.9
    trust_remote_code: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "max_model_len", "batch_size", "tp_size", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SettingsError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
        share = self.gpu_memory_utilization
        if not (math.isfinite(share) and 0 < share <= 1):
            raise SettingsError(f"--gpu-memory-utilization must be above 0 and at most 1, not {share}")
        self._check_sampling()

    def _check_sampling(self) -> None:
        if not (math.isfinite(self.temperature) and (self.temperature == 0 or self.temperature >= LOWEST_TEMPERATURE)):
            raise SettingsError(f"--temperature must be 0 or at least {LOWEST_TEMPERATURE}, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise SettingsError(f"--top-p must be above 0 and at most 1, not {self.top_p}")
        if not 0 <= self.top_k <= MOST_TOP_K:
            raise SettingsError(f"--top-k must be at least 1, or 0 for all tokens, not {self.top_k}")
        if not 0 <= self.seed <= MOST_SEED:
            raise SettingsError(f"--seed must be 0 to {MOST_SEED}, not {self.seed}")
        if self.temperature == 0 and (self.top_p != 1 or self.top_k):
            raise SettingsError(
                "--top-p and --top-k choose among sampled tokens, and --temperature 0 always takes the likeliest: "
                "leave them out, or give a temperature"
            )


def parse(argv: Sequence[str]) -> RegenerateSettings:
    """The settings a command line gives.

    Args:
        argv: the flags, without the stage's name.

    Raises:
        SettingsError: a value out of its range.
        SystemExit: with 2 for an unknown flag or a malformed value, with 0 after --help.
    """
    return RegenerateSettings(**vars(parser().parse_args(argv)))


def parser() -> argparse.ArgumentParser:
    """The stage's parser; its defaults are those of `RegenerateSettings`."""
    made = argparse.ArgumentParser(
        prog="python -m pipeline regenerate",
        description="The target's own answers to prompts, as conversations that prepare reads.",
        allow_abbrev=False,
    )

    def flag(name: str, meaning: str, **how: Any) -> None:
        default = getattr(RegenerateSettings, name.replace("-", "_"))
        shown = "" if default in (None, False) else " (default: %(default)s)"
        made.add_argument(f"--{name}", help=meaning + shown, default=default, **how)

    made.add_argument("--input", type=Path, nargs="+", action="extend", required=True, metavar="FILE", help=_INPUT)
    made.add_argument("--model-path", type=Path, required=True, help="the target's checkpoint folder")
    made.add_argument("--output-dir", type=Path, required=True, help="where the conversations go")
    flag("temperature", "0: always the likeliest token; higher: sampled, 1 as the target has it", type=float)
    flag("top-p", "sample from the likeliest tokens that together have this probability", type=float)
    flag("top-k", "sample from this many of the likeliest tokens; 0: from all", type=int)
    flag("seed", "an answer's draws depend on this, the conversation's id and the turn, and on nothing else", type=int)
    flag("max-new-tokens", "an answer is cut off after so many", type=int)
    flag("unfinished", "answers that were cut off: reject, or keep as far as they go", choices=get_args(Unfinished))
    flag("max-model-len", "most tokens of prompt and answer; default: 4096, or the target's positions", type=int)
    flag("batch-size", "answers written at a time", type=int)
    flag("tp-size", "tensor parallelism: over how many devices the target is split", type=int)
    flag("dtype", "what the target computes in; auto: the checkpoint's own", choices=get_args(Dtype))
    flag("gpu-memory-utilization", "share of each GPU's memory that vLLM may take", type=float)
    flag("trust-remote-code", "run Python code that comes with the checkpoint", action="store_true")
    flag("limit", "read only so many rows, from the first", type=int)
    return made


_INPUT = "prompts or conversations, JSONL; several, or repeated"
