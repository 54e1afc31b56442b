"""Losses weighted by the rows they are means of, so that how rows are spread over processes makes no difference."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from speculators.models.eagle3 import Eagle3DraftModel

_LEAST = 1e-5
"""speculators' losses are sums over trained rows divided by their number plus this (losses/utils.py)"""


def weigh_by_rows(draft: Eagle3DraftModel) -> None:
    """Have a draft give this process's part of the mean over all processes' rows.

    Data-parallel training averages gradients over processes; each process's loss is the mean over its own trained rows.
    With n of N trained rows here and P processes, P * n / N times the loss makes that average the mean over all N rows.
    The metrics, sums and totals that are added up over processes, are given the same weight.
    """
    draft.register_forward_hook(_weigh, with_kwargs=True)


def _weigh(draft: torch.nn.Module, arguments: Any, named: dict[str, Any], output: Any) -> Any:
    tokens, loss, metrics = output
    rows = named["loss_mask"].sum() + _LEAST
    for name, value in metrics.items():
        if "loss" in name:
            metrics[name] = rows * (value if name.endswith("_sum") else 1.0)
    if draft.training and dist.is_initialized():
        everywhere = rows.clone()
        dist.all_reduce(everywhere)
        loss = loss * (rows * dist.get_world_size() / everywhere)
    return tokens, loss, metrics
