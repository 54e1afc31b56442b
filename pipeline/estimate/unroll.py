"""The draft's own proposals at every position of a sample at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from speculators.models.eagle3 import Eagle3DraftModel


@torch.no_grad()
def proposals(
    model: Eagle3DraftModel, states: torch.Tensor, input_ids: torch.Tensor, steps: int, to_target: torch.Tensor | None
) -> torch.Tensor:
    """What the draft would propose in a round that begins at each position.

    The unroll of training (`Eagle3DraftModel.forward`): at step k, column i reads the token at position i + 1 + k and
    proposes that at i + 2 + k. It sees what the served draft sees: keys and values of step 0, made from the target's
    states, of all columns up to i, and at later steps its own of this round alone. vLLM keeps the same: after each
    round the first pass runs over the accepted tokens with the target's states
    (`SpecDecodeBaseProposer.set_inputs_first_pass`), in place of what the draft had put there itself. Its position ids
    are one less than those of training, which rotary embeddings, being relative, do not see.

    The tokens that steps read are the sample's, not the draft's: the same as long as the draft is right, and after its
    first wrong token nothing more of a round counts.

    Args:
        model: the draft, in float32.
        states: the auxiliary states, joined in order of layers, `[rows, layers * hidden]`.
        input_ids: `[rows]`.
        steps: tokens a round.
        to_target: the target's id of each draft id, or None.

    Returns:
        target ids, int64 `[steps, rows - 1]`.
    """
    columns = len(input_ids) - 1
    drafted = model(
        hidden_states=states[None, :-1],
        input_ids=input_ids[None, 1:],
        document_ids=torch.zeros(1, columns, dtype=torch.int64, device=states.device),
        position_ids=torch.arange(1, columns + 1, device=states.device)[None],
        ttt_steps=steps,
    )
    ids = torch.cat(drafted)
    return ids if to_target is None else to_target.to(ids.device)[ids]
