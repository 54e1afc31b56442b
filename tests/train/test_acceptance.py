"""Acceptance, counted by hand: seven rows of one sample, rows 0 to 4 trained, two steps of the draft.

row                  0   1   2   3   4   5   6
target's choice      a   b   c   d   e   f   g
step 0 proposes      a   b   z   d   e   f   g        4 taken of 5 (not row 2)
step 1 proposes      b   z   d   e   f   .   .        for row j the choice of row j+1
asked at step 1      x   x       x                    rows taken before, whose next row is trained
taken                x           x                    2 of 3
"""

from __future__ import annotations

import pytest
import torch

from pipeline.train.acceptance import Acceptance, Choices, count

CHOICES = torch.tensor([1, 2, 3, 4, 5, 6, 7])
TRAINED = torch.tensor([1, 1, 1, 1, 1, 0, 0]).bool()
FIRST = torch.tensor([1, 2, 0, 4, 5, 6, 7])
SECOND = torch.tensor([2, 0, 4, 5, 6, 0, 0])


def test_proposals_count_where_those_before_were_taken():
    counts = count([FIRST, SECOND], CHOICES, TRAINED, torch.zeros(7, dtype=torch.long))
    assert counts.tolist() == [[4, 2], [5, 3]]


def test_proposals_do_not_reach_into_the_next_sample():
    documents = torch.tensor([0, 0, 1, 1, 1, 1, 1])
    counts = count([FIRST, SECOND], CHOICES, TRAINED, documents)
    assert counts.tolist() == [[4, 2], [5, 2]]  # not row 1, whose next row is another sample's


def test_the_length_multiplies_the_shares():
    assert Acceptance((4, 2), (5, 3)).length == pytest.approx(1 + 4 / 5 + 4 / 5 * 2 / 3)
    assert Acceptance((0, 0), (0, 0)).length == 1


def test_the_targets_choice_is_of_its_whole_vocabulary_and_normed_once():
    norm = torch.nn.RMSNorm(2)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 0.1]))
    head = torch.tensor([[1.0, 0.0], [0.0, 3.0], [0.0, 20.0]])
    choices = Choices(norm, head)
    # Normed, (1, 1) is (1, 0.1): logits 1, 0.3 and 2. Not normed, token 2 would win for (1, 0.06), too.
    states = torch.tensor([[1.0, 1.0], [1.0, 0.06]])
    assert choices.of(0, states).tolist() == [2, 0]


def test_choices_are_remembered_by_batch():
    choices = Choices(torch.nn.Identity(), torch.eye(3))
    first = choices.of(0, torch.tensor([[0.0, 1.0, 0.0]]))
    choices.complete()
    assert choices.of(0, torch.zeros(1, 3)).tolist() == first.tolist() == [1]
