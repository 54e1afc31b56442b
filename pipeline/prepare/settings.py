"""What a run may choose about samples."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Literal

from pipeline.errors import SettingsError

DAY = date(2026, 1, 1)
"""what templates that write today's date are told, so that the same input gives the same samples on any day"""
TrainOn = Literal["all", "last"]
Truncate = Literal["left", "right", "reject", "split-turns"]
SpecialTokens = Literal["literal", "reject", "encode"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Each text below a field is also its flag's help."""

    max_seq_len: int = 2048
    """longest sample, in tokens"""
    train_on: TrainOn = "all"
    """all: every answer of a conversation is trained; last: only its last"""
    min_trained_tokens: int = 1
    """samples with fewer trained tokens are left out"""
    truncate: Truncate = "right"
    """what becomes of samples over --max-seq-len: right: their end is cut off; left: their begin; reject: nothing;
    split-turns: several samples, each as long as may be, that end with a turn"""
    special_tokens: SpecialTokens = "literal"
    """text in messages that looks like the target's special tokens. literal: stays ordinary text; reject: the row is
    left out; encode: becomes these tokens, which lets a message end its turn and begin another's"""
    day: date = DAY
    """the date that chat templates which write today's are told, so that any day gives the same samples"""

    def __post_init__(self) -> None:
        for name in ("max_seq_len", "min_trained_tokens"):
            if getattr(self, name) < 1:
                raise SettingsError(f"--{name.replace('_', '-')} {getattr(self, name)}: give at least 1")
