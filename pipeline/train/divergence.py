"""The divergence that training lessens, as a CPU computes it fast.

speculators' own for a CPU makes each of its passes over all logits: a dozen, of a size that no cache holds. This one
takes a few rows at a time through all of them, and has the gradient in closed form: for draft logits z, with q their
softmax and p the target's distribution, d KL(p || q) / dz = q - p.
"""

from __future__ import annotations

from typing import Any

import torch

_ROWS_SIZE = 1 << 20
"""logits at once: two such blocks in float32 lie in a core's second-level cache and a share of the third"""


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """See `kl_div`."""
        said, wanted = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1, targets.shape[-1])
        found = said.new_empty(len(said), dtype=torch.float32)
        gradient = torch.empty_like(said) if ctx.needs_input_grad[0] else None
        rows = max(1, _ROWS_SIZE // said.shape[-1])
        for start in range(0, len(said), rows):
            here = slice(start, start + rows)
            log_q = torch.log_softmax(said[here], -1, dtype=torch.float32)
            # Not below what is 0 as a probability anyway: 0 times infinity is no number.
            log_p = torch.log_softmax(wanted[here], -1, dtype=torch.float32).clamp_min_(-1000.0)
            p = log_p.exp()
            found[here] = torch.linalg.vecdot(p, log_p.sub_(log_q))
            if gradient is not None:
                gradient[here] = log_q.exp_().sub_(p)
        ctx.save_for_backward(gradient)
        return found.reshape(logits.shape[:-1])

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor) -> tuple[torch.Tensor | None, None]:
        """The closed form, times what comes from above."""
        (gradient,) = ctx.saved_tensors
        if gradient is None:
            return None, None
        weighted = torch.mul(gradient, given[0].reshape(-1, 1), out=torch.empty_like(gradient))
        return weighted.reshape(*given[0].shape, gradient.shape[-1]), None


def kl_div(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """KL divergence of the target's distribution from the draft's: what speculators' `kl_div_loss` gives.

    Args:
        logits: the draft's `[..., vocabulary]`; the gradient has their dtype.
        targets: the target's logits over the same tokens; no gradient reaches them.

    Returns:
        float32 `[...]`, in nats.
    """
    divergence: torch.Tensor = _Divergence.apply(logits, targets)
    return divergence
