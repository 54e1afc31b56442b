"""The draft's vocabulary: the tokens that the training samples train most, and no others."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.errors import FitError, InputError
from pipeline.store.dataset import HiddenStateDataset
from pipeline.store.records import CapturedSample
from pipeline.train import vocabulary
from pipeline.train.job import Job, settle
from pipeline.train.settings import parse
from pipeline.train.split import held_out
from tests.train import making
from tests.train.conftest import SMALL, arguments

WORDS = 3000
"""tokens of a target that has a curve"""
SAMPLES = 60


def counts(size: int = 10, **of: int) -> vocabulary.Counts:
    made: vocabulary.Counts = np.zeros(size, np.int64)
    for token, times in of.items():
        made[int(token[1:])] = times
    return made


def talk(number: int) -> tuple[list[int], list[int]]:
    """Tokens and mask of a sample: frequent tokens have low ids, and a third is not the target's own."""
    rng = random.Random(number)  # noqa: S311 - not for secrets
    tokens = [min(int(rng.paretovariate(0.4)) - 1, WORDS - 1) for _ in range(50)]
    return tokens, [0, 0] + [int(rng.random() < 0.66) for _ in range(48)]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return making.target(tmp_path_factory.mktemp("wide"), vocabulary=WORDS)


def samples() -> list[CapturedSample]:
    return [making.sample(f"sample-{number}", *talk(number)) for number in range(SAMPLES)]


def settled(folder: Path, target: Path, made: list[CapturedSample], **flags: object) -> Job:
    store = making.store(folder / "store", target, made, vocab_size=WORDS)
    return settle(parse(arguments(folder / "out", target=target, store=store, **flags)))


def test_only_trained_tokens_of_the_samples_asked_for_count(target: Path, tmp_path: Path) -> None:
    made = [making.sample("a", [1, 2, 2, 3], [0, 1, 1, 0]), making.sample("b", [5, 5, 5], [1, 0, 1])]
    dataset = HiddenStateDataset(making.store(tmp_path / "store", target, made))
    assert vocabulary.count_tokens(dataset, [0], 10).tolist() == [0, 0, 2, 0, 0, 0, 0, 0, 0, 0]
    assert vocabulary.count_tokens(dataset, [0, 1], 10).tolist() == [0, 0, 2, 0, 0, 2, 0, 0, 0, 0]


def test_map_and_coverage_are_those_of_an_independent_count_of_the_training_samples(wide: Path, tmp_path: Path) -> None:
    job = settled(tmp_path, wide, samples(), draft_vocab_size=40, batch_tokens=200)
    trained = [
        token
        for number in range(SAMPLES)
        if not held_out(f"sample-{number}", 0, float(SMALL["validation-share"]))
        for token, own in zip(*talk(number), strict=True)
        if own
    ]
    count = Counter(trained)
    ranked = sorted(count, key=lambda token: (-count[token], token))
    assert count[ranked[39]] == count[ranked[40]]  # a tie at the border
    assert job.vocabulary.target_ids.tolist() == sorted(ranked[:40])
    everything = Counter(token for number in range(SAMPLES) for token, own in zip(*talk(number), strict=True) if own)
    assert sorted(ranked[:40]) != sorted(sorted(everything, key=lambda token: (-everything[token], token))[:40])
    report, total = job.vocabulary_report, len(trained)
    assert (report["size"], report["trained_tokens"], report["distinct_tokens"]) == (40, total, len(count))
    assert report["covered"] == sum(count[token] for token in ranked[:40]) / total
    assert report["curve"] == {
        size: sum(count[token] for token in ranked[: int(size)]) / total for size in ("1000", "2000", "3000")
    }
    assert report["made_from"]["store_digest"] == job.manifest["store_digest"]
    assert report["made_from"]["training_samples"] == len(job.training) < SAMPLES


def test_the_curve_says_what_each_size_would_cover() -> None:
    curve = vocabulary.coverage(np.random.default_rng(0).permutation(5000))
    total = 5000 * 4999 / 2
    assert list(curve) == [1000, 2000, 4000, 5000]
    assert [curve[size] for size in curve] == [sum(range(5000 - size, 5000)) / total for size in curve]


def test_the_same_samples_in_another_order_give_the_same_files(wide: Path, tmp_path: Path) -> None:
    written = []
    for name, made in (("one", samples()), ("two", samples()[::-1])):
        job = settled(tmp_path / name, wide, made, draft_vocab_size=40, batch_tokens=200)
        vocabulary.write(tmp_path / name, job.vocabulary, job.vocabulary_report)
        written.append([(tmp_path / name / file).read_bytes() for file in FILES])
    assert written[0] == written[1]


FILES = ("d2t-40.npy", "t2d-40.npy", "coverage-40.json")


def test_among_tokens_as_frequent_the_lower_id_is_in() -> None:
    found = vocabulary.choose(counts(t7=9, t9=5, t3=5, t4=5, t1=2), 3)
    assert found.target_ids.tolist() == [3, 4, 7]


def test_a_draft_id_plus_its_offset_is_the_targets_id() -> None:
    found = vocabulary.choose(counts(t7=9, t3=5, t4=6), 3)
    assert found.d2t.tolist() == [3, 3, 5]  # 0 + 3, 1 + 3, 2 + 5
    assert found.t2d.tolist() == [False, False, False, True, True, False, False, True, False, False]
    assert (found.d2t.dtype, found.t2d.dtype) == (torch.int64, torch.bool)


def test_tokens_never_seen_fill_up() -> None:
    assert vocabulary.choose(counts(t8=1), 3).target_ids.tolist() == [0, 1, 8]


def test_a_vocabulary_as_large_as_the_targets_is_the_targets() -> None:
    found = vocabulary.choose(counts(t8=1), 10)
    assert found.d2t.tolist() == [0] * 10
    assert found.t2d.all()


def test_what_is_written_is_what_is_read_with_its_size_in_the_names(tmp_path: Path) -> None:
    made = written(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["coverage-2.json", "d2t-2.npy", "t2d-2.npy"]
    found, about = vocabulary.read(tmp_path, 2)
    assert torch.equal(found.d2t, made.d2t)
    assert torch.equal(found.t2d, made.t2d)
    assert (about["covered"], about["made_from"]) == (0.9, {"store_digest": "s"})


def written(folder: Path) -> vocabulary.Vocabulary:
    seen = counts(t7=6, t9=3, t2=1)
    made = vocabulary.choose(seen, 2)
    vocabulary.write(folder, made, vocabulary.report(made, seen, {"store_digest": "s"}))
    return made


def flip(folder: Path) -> None:
    """One token more in t2d."""
    t2d = np.load(folder / "t2d-2.npy")
    np.save(folder / "t2d-2.npy", t2d | (np.arange(10) == 4))


def swap(folder: Path) -> None:
    """As many tokens in t2d, but not the same."""
    np.save(folder / "t2d-2.npy", np.isin(np.arange(10), [7, 8]))


def another(folder: Path) -> None:
    """The map of other data."""
    np.save(folder / "d2t-2.npy", vocabulary.choose(counts(t1=6, t2=3), 2).d2t.numpy())


def of_another_target(folder: Path) -> None:
    """A t2d of a larger vocabulary."""
    np.save(folder / "t2d-2.npy", np.append(np.load(folder / "t2d-2.npy"), False))


def cut(folder: Path) -> None:
    """A file that ends too early."""
    file = folder / "d2t-2.npy"
    file.write_bytes(file.read_bytes()[:-3])


def empty(folder: Path) -> None:
    """A file with nothing in it."""
    (folder / "t2d-2.npy").write_bytes(b"")


def gone(folder: Path) -> None:
    """No coverage file."""
    (folder / "coverage-2.json").unlink()


def pickled(folder: Path) -> None:
    """Arrays of objects are pickles."""
    np.save(folder / "d2t-2.npy", np.array([7, None]), allow_pickle=True)


@pytest.mark.parametrize(
    ("harm", "error", "told"),
    [
        (flip, FitError, "d2t-2.npy and t2d-2.npy name different tokens"),
        (swap, FitError, "d2t-2.npy and t2d-2.npy name different tokens"),
        (another, FitError, r"coverage-2\.json has digest"),
        (of_another_target, FitError, r"coverage-2\.json has digest"),
        (cut, InputError, "cannot read the vocabulary of size 2"),
        (empty, InputError, "cannot read the vocabulary of size 2"),
        (gone, InputError, "cannot read the vocabulary of size 2"),
        (pickled, InputError, "cannot read the vocabulary of size 2"),
    ],
)
def test_a_damaged_map_and_one_of_other_data_are_refused(
    harm: Callable[[Path], None], error: type[Exception], told: str, tmp_path: Path
) -> None:
    written(tmp_path)
    harm(tmp_path)
    with pytest.raises(error, match=told):
        vocabulary.read(tmp_path, 2)


def test_a_map_that_other_data_left_is_replaced_and_the_draft_has_the_new_one(
    train: Callable[..., Path], tmp_path: Path
) -> None:
    seen = np.arange(making.VOCABULARY)
    left = vocabulary.choose(seen, 12)
    vocabulary.write(tmp_path / "vocabulary", left, vocabulary.report(left, seen, {}))
    train(tmp_path, epochs=1)
    found, _ = vocabulary.read(tmp_path / "vocabulary", 12)
    assert found.digest != left.digest
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_bytes())
    assert report["identity"]["vocabulary"] == found.digest
