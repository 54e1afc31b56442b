from __future__ import annotations

import random

import pytest

from pipeline.errors import SettingsError
from pipeline.train.batches import StepBatches

LENGTHS = [random.Random(number).randrange(2, 60) for number in range(200)]  # noqa: S311 - lengths, no secrets


def batches(**changes: object) -> StepBatches:
    return StepBatches(**{"lengths": LENGTHS, "batch_tokens": 128, "seed": 0} | changes)


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_every_sample_is_in_one_step_of_an_epoch_for_one_process(processes: int):
    ranks = [batches(rank=rank, processes=processes) for rank in range(processes)]
    assert sorted(sample for rank in ranks for batch in rank for sample in batch) == list(range(200))
    assert len({len(rank) for rank in ranks}) == 1


def test_no_step_has_more_tokens_than_allowed():
    assert max(sum(LENGTHS[sample] for sample in step) for step in batches().steps(0)) <= 128


def test_a_step_has_the_same_samples_whatever_the_number_of_processes():
    two = [batches(rank=rank, processes=2) for rank in range(2)]
    assert [sorted(a + b) for a, b in zip(*two, strict=True)] == [sorted(step) for step in batches().steps(0)]


def test_processes_share_a_step_evenly():
    two = [batches(rank=rank, processes=2, batch_tokens=1000) for rank in range(2)]
    for shares in zip(*two, strict=True):
        tokens = [sum(LENGTHS[sample] for sample in share) for share in shares]
        assert abs(tokens[0] - tokens[1]) < 60  # the longest sample


def test_another_epoch_and_another_seed_have_another_order_and_the_same_ones_the_same():
    assert batches().steps(0) == batches().steps(0)
    assert batches().steps(0) != batches().steps(1)
    assert batches().steps(0) != batches(seed=1).steps(0)
    assert batches(shuffle=False).steps(0) == batches(shuffle=False).steps(1)


def test_going_on_skips_what_was_done_once():
    whole, again = list(batches()), batches()
    again.skip(5)
    assert list(again) == whole[5:]
    assert list(again) == whole


def test_a_sample_that_fits_into_no_step_is_refused_with_its_length():
    with pytest.raises(SettingsError, match="--batch-tokens 50 is less than the longest sample has, 59"):
        batches(batch_tokens=50)
