"""The loss of a sample of eight tokens, beside an independent computation of it.

    token i          0   1   2   3   4   5   6   7
    the target's     .   .   .   x   x   x   x   x        a prompt of three tokens, an answer of five

    row j            0   1   2   3   4   5   6
    given x(j+1), predicts x(j+2): both the target's own in rows 2, 3, 4 and 5.

Step k of training-time test continues from row j as a server does: the draft has been given x(j+1), ..., x(j+1+k), and
predicts x(j+2+k); what it should say is the target's distribution over the draft's vocabulary from its last state at
j+1+k. So in step 1 rows 1 to 4 count, and in step 2 rows 0 to 3: those that predict rows 2 to 5's tokens.
"""

from __future__ import annotations

from pathlib import Path

import torch
from speculators.losses import resolve_loss_config

from pipeline.train.rows import DraftRows
from tests.train import plain_eagle3 as plain
from tests.train.tiny_drafts import INPUTS, make_draft, make_target, states

TOKENS = [3, 5, 7, 9, 2, 4, 6, 11]
OWN = [0, 0, 0, 1, 1, 1, 1, 1]
STEPS = 3


def test_the_loss_of_eight_tokens_is_that_of_an_independent_computation(tmp_path: Path) -> None:
    target = make_target(tmp_path / "target")
    draft = make_draft(tmp_path / "draft", tmp_path / "target")
    taken = states(target, TOKENS)
    auxiliary = taken[:, [layer - 1 for layer in INPUTS]].flatten(1)
    made = DraftRows(STEPS)(
        {
            "input_ids": torch.tensor(TOKENS),
            "hidden_states": auxiliary,
            "verifier_last_hidden_states": taken[:, -1],
            "loss_mask": torch.tensor(OWN).bool(),
            "lengths": torch.tensor([8]),
            "position_ids": torch.arange(8),
        }
    )
    assert made["loss_mask"].tolist() == [False, False, True, True, True, True, False]
    length = int(made.pop("lengths"))
    batch = {name: value[None] for name, value in made.items()}
    _, loss, _ = draft(
        **batch,
        document_ids=torch.zeros(1, length, dtype=torch.long),
        ttt_steps=STEPS,
        loss_config=resolve_loss_config("kl_div", "eager"),
    )
    assert abs(float(loss) - independent_loss(tmp_path / "draft", target, auxiliary, taken[:, -1])) < 1e-6 * float(loss)


def independent_loss(folder: Path, target: torch.nn.Module, auxiliary: torch.Tensor, last: torch.Tensor) -> float:
    config, weights = plain.read(folder)
    embed = target.get_submodule("model.embed_tokens").weight
    kept = weights["t2d"].nonzero().flatten()
    normed = plain.norm(last, target.get_submodule("model.norm").weight, target.config.rms_norm_eps)  # type: ignore[union-attr, arg-type]
    wanted = (normed @ target.get_submodule("lm_head").weight[kept].T).double().softmax(-1)
    total = 0.0
    for step in range(STEPS):
        divergences = [
            torch.sum(wanted[row + step + 1] * (wanted[row + step + 1].log() - said.log()))
            for row in range(2 - step, 6 - step)
            for said in [proposal(config, weights, embed, auxiliary, row, step)]
        ]
        total += float(sum(divergences)) / (4 + 1e-5)  # so speculators takes means (losses/utils.py)
    return total


def proposal(
    config: plain.Config, weights: plain.Weights, embed: torch.Tensor, auxiliary: torch.Tensor, row: int, step: int
) -> torch.Tensor:
    """What the draft says from this row on after so many steps, everything computed again for each of them."""
    hidden = plain.fuse(weights, auxiliary[: row + 1])
    for number in range(step + 1):
        given = torch.tensor(TOKENS[1 : row + 2 + number])
        out = plain.layer(config, weights, embed[given], hidden)
        hidden = torch.cat([hidden, out[-1:]])
    return plain.logits(config, weights, out[-1]).double().softmax(-1)
