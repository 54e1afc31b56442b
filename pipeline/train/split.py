"""Which samples train and which validate."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline.errors import SettingsError

_RANGE = 1 << 64
_NUMBER = re.compile(r"#[0-9]+\Z")


def held_out(sample: str, seed: int, share: float) -> bool:
    """Whether a sample validates: a function of its id and the seed, so that more samples change nothing for it.

    Several samples of one conversation, which `prepare` numbers (`chat#1`, `chat#2`), stay together: they share text.
    """
    conversation = _NUMBER.sub("", sample)
    number = int.from_bytes(hashlib.sha256(f"{seed}\n{conversation}".encode()).digest()[:8], "big")
    return number < share * _RANGE


def split(ids: Sequence[str], seed: int, share: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The numbers of the samples that train, and of those that validate.

    Args:
        ids: the samples', by number.
        seed: of the split.
        share: of samples that validate, on average.

    Raises:
        SettingsError: one of the two would be empty.
    """
    validates = np.array([held_out(sample, seed, share) for sample in ids], np.bool_)
    training, validation = np.flatnonzero(~validates), np.flatnonzero(validates)
    for name, numbers in (("train on", training), ("validate with", validation)):
        if not len(numbers):
            raise SettingsError(
                f"--validation-share {share} leaves none of {len(ids):,} samples to {name}: change it, or --seed"
            )
    return training, validation
