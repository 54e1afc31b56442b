"""From a sample's tokens to the rows a draft is trained on.

Row j of a sample x(0) ... x(n-1), whose token i has the auxiliary states g(i), the last state y(i) and the mask l(i):

    the draft is given          g(j) and x(j+1)
    it predicts                 x(j+2), whose distribution is the target's head over the normed y(j+1)
    it is trained where         l(j+1) and l(j+2): both tokens are the target's own

That is what serving does: the target computes x(0) to x(j), has sampled x(j+1), and the draft proposes x(j+2). The
first token of an answer is never proposed by a draft, as the prompt's forward pass gives it, and neither is what would
follow an end of turn. In step k of training-time test, row j stands k tokens further on: its input is x(j+1+k), its
target that of row j+k, and so is its mask.
"""

from __future__ import annotations

import torch
from speculators.models.eagle3.data import shift_batch

Rows = dict[str, torch.Tensor]


class DraftRows:
    """Makes rows of a sample; speculators calls it for each sample before it packs them."""

    def __init__(self, ttt_steps: int) -> None:
        """For training with so many steps of training-time test."""
        self._ttt_steps = ttt_steps

    def __call__(self, sample: Rows) -> Rows:
        """A sample of n tokens as n - 1 rows.

        Args:
            sample: `hidden_states` `[n, layers * hidden]`, `verifier_last_hidden_states` `[n, hidden]`, `input_ids`,
                `loss_mask` (bool) and `position_ids` `[n]`, `lengths` `[1]`.

        Returns:
            The same names; a row has the mask of the token it predicts.
        """
        own = sample["loss_mask"]
        rows: Rows = shift_batch(sample)
        given = own[1:]
        predicted = torch.cat([own[2:], own.new_zeros(1)])[: len(given)]
        trained = given & predicted
        # In step k the last k rows of the sample before reach into this one: its states are not what follows there.
        trained[: self._ttt_steps - 1] = False
        rows["loss_mask"] = trained
        return rows
