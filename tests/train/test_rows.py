"""Which rows are trained on, worked out by hand for one sample of eight tokens.

    token i          0   1   2   3   4   5   6   7
    x(i)             3   5   7   9   2   4   6   1
    the target's     .   .   .   x   x   x   x   .        a prompt of three tokens, an answer of four, a prompt's token

    row j            0   1   2   3   4   5   6
    given x(j+1)     5   7   9   2   4   6   1
    predicts x(j+2)  7   9   2   4   6   1   -
    both its own     .   .   x   x   x   .   .            rows 2, 3 and 4

Row 1 predicts the answer's first token, which serving's prefill gives; row 5 what would come after the answer.
"""

from __future__ import annotations

import torch

from pipeline.train.rows import DraftRows

TOKENS = [3, 5, 7, 9, 2, 4, 6, 1]
OWN = [0, 0, 0, 1, 1, 1, 1, 0]


def rows(own: list[int], ttt_steps: int = 3) -> dict[str, torch.Tensor]:
    numbers = torch.arange(8.0)
    return DraftRows(ttt_steps)(
        {
            "input_ids": torch.tensor(TOKENS),
            "hidden_states": numbers[:, None],
            "verifier_last_hidden_states": 10 * numbers[:, None],
            "loss_mask": torch.tensor(own).bool(),
            "lengths": torch.tensor([8]),
            "position_ids": torch.arange(8),
        }
    )


def test_a_row_has_a_state_the_next_token_and_the_last_state_of_that_token():
    made = rows(OWN)
    assert made["hidden_states"].flatten().tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert made["input_ids"].tolist() == [5, 7, 9, 2, 4, 6, 1]
    assert made["verifier_last_hidden_states"].flatten().tolist() == [10, 20, 30, 40, 50, 60, 70]
    assert made["position_ids"].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert made["lengths"].tolist() == [7]


def test_a_row_is_trained_where_the_token_it_is_given_and_the_one_it_predicts_are_the_targets():
    assert rows(OWN)["loss_mask"].tolist() == [False, False, True, True, True, False, False]


def test_the_first_rows_are_not_trained_as_the_sample_before_reaches_into_them():
    everything = [1] * 8
    assert rows(everything, ttt_steps=1)["loss_mask"].tolist() == [True] * 6 + [False]
    assert rows(everything, ttt_steps=3)["loss_mask"].tolist() == [False] * 2 + [True] * 4 + [False]


def test_a_sample_of_one_token_has_no_rows():
    one = {
        "input_ids": torch.tensor([3]),
        "hidden_states": torch.zeros(1, 1),
        "verifier_last_hidden_states": torch.zeros(1, 1),
        "loss_mask": torch.tensor([True]),
        "lengths": torch.tensor([1]),
        "position_ids": torch.arange(1),
    }
    made = DraftRows(3)(one)
    assert len(made["loss_mask"]) == len(made["input_ids"]) == 0
