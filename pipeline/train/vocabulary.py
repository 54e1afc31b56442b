"""The draft's vocabulary: the tokens it can propose, those that the target produces most in the training samples.

vocabulary/d2t-<size>.npy        int64 [size]: target id = draft id + d2t[draft id]
vocabulary/t2d-<size>.npy        bool [target's vocabulary]: whether the draft can propose a token
vocabulary/coverage-<size>.json  what they were made from, and the share of trained tokens that each size covers
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution

from pipeline.errors import FitError, InputError
from pipeline.store.dataset import HiddenStateDataset
from pipeline.store.durable import write_synced

DEFAULT_SIZE = 32_000
FOLDER = "vocabulary"
Counts: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Vocabulary:
    """The map between the draft's tokens and the target's."""

    d2t: torch.Tensor
    """int64 `[size]`: what to add to a draft id to have the target's"""
    t2d: torch.Tensor
    """bool `[target's vocabulary]`"""

    @property
    def size(self) -> int:
        """The draft's."""
        return len(self.d2t)

    @property
    def target_ids(self) -> torch.Tensor:
        """int64 `[size]`: the target's id of each of the draft's tokens."""
        return self.d2t + torch.arange(self.size)

    @property
    def consistent(self) -> bool:
        """Whether both maps name the same tokens of the target, each of them once."""
        ids, words = self.target_ids, len(self.t2d)
        within = bool(((ids >= 0) & (ids < words)).all()) and int(self.t2d.sum()) == self.size
        return within and bool(self.t2d[ids].all()) and len(ids.unique()) == self.size

    @property
    def digest(self) -> str:
        """sha256 over the map, in hex: of the target's ids as int64, after a line of JSON with both sizes."""
        head = json.dumps([self.size, len(self.t2d)]).encode() + b"\n"
        return hashlib.sha256(head + self.target_ids.numpy().astype("<i8").tobytes()).hexdigest()


def count_tokens(dataset: HiddenStateDataset, numbers: Iterable[int], vocab_size: int) -> Counts:
    """How often each of the target's tokens is trained on: int64 `[vocab_size]`.

    Args:
        dataset: the store.
        numbers: of the samples that train.
        vocab_size: the target's.
    """
    counts: Counts = np.zeros(vocab_size, np.int64)
    for number in numbers:
        sample = dataset[number]
        trained = sample["input_ids"][sample["loss_mask"].bool()]
        counts += np.bincount(trained.numpy(), minlength=vocab_size)
    return counts


def choose(counts: Counts, size: int) -> Vocabulary:
    """The `size` tokens trained on most, the lower id first among equals; those never seen come last."""
    seen = {int(token): int(counts[token]) for token in np.flatnonzero(counts)}
    d2t, t2d = build_vocab_mappings_from_distribution(seen, size, len(counts))
    return Vocabulary(d2t, t2d)


def coverage(counts: Counts) -> dict[int, float]:
    """The share of trained tokens that the most frequent 1,000, 2,000, 4,000 ... cover, up to the whole vocabulary."""
    total = max(int(counts.sum()), 1)
    reached = np.sort(counts)[::-1].cumsum()
    return {size: int(reached[size - 1]) / total for size in _sizes(len(counts))}


def _sizes(vocab_size: int) -> Iterator[int]:
    size = 1_000
    while size < vocab_size:
        yield size
        size *= 2
    yield vocab_size


def report(vocabulary: Vocabulary, counts: Counts, made_from: dict[str, Any]) -> dict[str, Any]:
    """What the coverage file says.

    Args:
        vocabulary: the map.
        counts: of the training samples.
        made_from: what the counts come from.
    """
    total = int(counts.sum())
    return {
        "size": vocabulary.size,
        "digest": vocabulary.digest,
        "made_from": made_from,
        "trained_tokens": total,
        "distinct_tokens": int(np.count_nonzero(counts)),
        "covered": int(counts[vocabulary.t2d.numpy()].sum()) / max(total, 1),
        "curve": {str(size): share for size, share in coverage(counts).items()},
    }


def write(folder: Path, vocabulary: Vocabulary, about: dict[str, Any]) -> None:
    """Write map and coverage, each file in one step; what was there for this size is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in (("d2t", vocabulary.d2t), ("t2d", vocabulary.t2d)):
        write_synced(folder / f"{name}-{vocabulary.size}.npy", [_npy(array.numpy())])
    write_synced(folder / f"coverage-{vocabulary.size}.json", [json.dumps(about, indent=2).encode() + b"\n"])


def read(folder: Path, size: int) -> tuple[Vocabulary, dict[str, Any]]:
    """The map of this size and what its coverage file says.

    Raises:
        FitError: it is not the map that the coverage file was written for.
        InputError: a file is missing or cannot be read.
    """
    try:
        d2t, t2d = (torch.from_numpy(np.load(folder / f"{name}-{size}.npy")) for name in ("d2t", "t2d"))
        about: dict[str, Any] = json.loads((folder / f"coverage-{size}.json").read_bytes())
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"cannot read the vocabulary of size {size} in {folder}: {error}") from error
    found = Vocabulary(d2t, t2d)
    if about["digest"] != found.digest:
        raise FitError(f"{folder}: coverage-{size}.json has digest {about['digest']}, the map is {found.digest}")
    if not found.consistent:
        raise FitError(f"{folder}: d2t-{size}.npy and t2d-{size}.npy name different tokens")
    return found, about


def _npy(array: npt.NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()
