"""A draft's projection of the auxiliary states, made quick to train: inputs of one scale, a start in closed form.

The states' dimensions differ by orders of magnitude (a few massive ones in every layer). An optimizer that moves all
weights by the same amount, as Adam does, then learns from the large dimensions alone. So `fc` computes with states that
were divided by their root mean square, dimension by dimension, and its weights are stored divided by the same: the
stored draft has the published form and gives the same numbers. The scales are powers of two, so nothing is rounded.

`fc` begins as the ridge regression from these states to what the draft's residual stream should hold: the target's own
last state one token later, of root mean square 1 as the final norm sees it.

While it trains, normal noise may be added to the scaled states: a draft that reads a few hundred thousand exact rows
again and again learns them by heart. EAGLE's first training code added uniform noise to its features, for that reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from speculators.models.eagle3 import Eagle3DraftModel

from pipeline.store.dataset import HiddenStateDataset

MOST_ROWS = 1 << 17
"""trained rows that are looked at: 23 for each unknown of Kimi-K2.5's regression"""
_RIDGE = 1e-3
"""of the inputs' mean square, 1"""
_SMALLEST = 2.0**-20
"""scale of a dimension that is always zero"""


@dataclass(frozen=True)
class Condition:
    """What is known of the auxiliary states before training."""

    scales: torch.Tensor
    """float32 `[auxiliary layers * hidden]`: the power of two next to each dimension's root mean square"""
    weight: torch.Tensor
    """float32 `[hidden, auxiliary layers * hidden]`: of `fc` for states divided by these"""


def measure(dataset: HiddenStateDataset, numbers: Sequence[int], noise: float = 0.0) -> Condition:
    """Look at samples, in this order, until there are enough rows.

    Args:
        dataset: of states, the target's last layer the last one.
        numbers: of the samples that train.
        noise: standard deviation of what training adds to the scaled states; the regression expects it.
    """
    squares, count = torch.zeros(()), 0
    for states, _ in _pairs(dataset, numbers):
        squares, count = squares + states.square().sum(0).double(), count + len(states)
    scales = torch.exp2((squares / max(count, 1)).sqrt().clamp_min(_SMALLEST).log2().round()).float()
    size = len(scales)
    gram, cross = torch.zeros(size, size, dtype=torch.float64), torch.zeros(())
    for states, last in _pairs(dataset, numbers):
        inputs = states / scales
        gram += (inputs.T @ inputs).double()
        cross = cross + (inputs.T @ last).double()
    # Noise of this size on every input would add its square there, in the mean.
    gram.diagonal().add_((_RIDGE + noise**2) * max(count, 1))
    return Condition(scales, torch.linalg.solve(gram, cross).T.float().contiguous())


def _pairs(dataset: HiddenStateDataset, numbers: Sequence[int]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Auxiliary states of the rows before trained ones, and the last states of these, of root mean square 1."""
    seen = 0
    for sample in dataset.in_order(numbers):
        trained = sample["loss_mask"][1:].bool()
        states = sample["hidden_states"]
        last = states[1:, -1][trained].float()
        yield (
            states[:-1, :-1][trained].flatten(1).float(),
            last * torch.rsqrt(last.square().mean(-1, keepdim=True).clamp_min(_SMALLEST)),
        )
        seen += len(last)
        if seen >= MOST_ROWS:
            return


def apply(draft: Eagle3DraftModel, condition: Condition, *, start: bool, noise: float = 0.0) -> None:
    """Have a draft's `fc` compute with scaled states; what is saved and loaded are the weights for unscaled ones.

    Args:
        draft: with weights for unscaled states.
        condition: of the states it is trained on.
        start: give `fc` the regression's weights.
        noise: standard deviation of what is added to the scaled states while the draft is in training mode.
    """
    fc, scales = draft.fc, condition.scales

    def divide(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        scaled = inputs[0] / scales.to(inputs[0])
        return (scaled + noise * torch.randn_like(scaled) if noise and draft.training else scaled,)

    def fold(module: Any, state: dict[str, torch.Tensor], prefix: str, local: Any) -> None:
        state[f"{prefix}weight"] = state[f"{prefix}weight"] / scales.to(fc.weight.device)

    def unfold(module: Any, state: dict[str, torch.Tensor], prefix: str, *others: Any) -> None:
        if (name := f"{prefix}weight") in state:
            state[name] = state[name] * scales.to(state[name].device)

    with torch.no_grad():
        fc.weight.copy_(condition.weight if start else fc.weight * scales)
    fc.register_forward_pre_hook(divide)
    fc.register_state_dict_post_hook(fold)
    fc.register_load_state_dict_pre_hook(unfold)
