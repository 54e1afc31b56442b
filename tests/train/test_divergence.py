"""The divergence computed by blocks of rows: speculators' values and gradients, whatever the blocks."""

from __future__ import annotations

import pytest
import torch
from speculators.losses import eager

from pipeline.train import divergence

SHAPE = (1, 37, 50)


def drawn(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    logits, targets = (4 * torch.randn(SHAPE, generator=generator) for _ in range(2))
    # A target that is all but sure, and a token that it rules out: terms of 0 times infinity if taken as they stand.
    targets[0, 0] = -200.0
    targets[0, 0, 7] = 200.0
    targets[0, 1, 3] = -torch.inf
    return logits.to(dtype), targets.to(dtype), torch.rand(SHAPE[:2], generator=generator)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 8, 1000])
def test_values_and_gradients_are_those_of_speculators(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, rows: int
) -> None:
    monkeypatch.setattr(divergence, "_ROWS_SIZE", rows * SHAPE[-1])
    logits, targets, weights = drawn(dtype)
    found = []
    for loss in (eager.kl_div_loss, divergence.kl_div):
        given = logits.clone().requires_grad_(True)
        values = loss(given, targets)
        (values * weights).sum().backward()
        assert given.grad is not None
        found.append((values.detach(), given.grad.float()))
    (theirs, their_gradient), (ours, our_gradient) = found
    assert ours.dtype == theirs.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    # Theirs is rounded once, ours twice, each time by at most 2^-8 of itself in bfloat16.
    precision = 2e-6 if dtype == torch.float32 else 3 * 2**-8
    torch.testing.assert_close(our_gradient, their_gradient, rtol=precision, atol=1e-6)


def test_the_gradient_is_the_numerical_one() -> None:
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(3, 5, generator=generator).requires_grad_(True)
    targets = torch.randn(3, 5, generator=generator)
    divergence.kl_div(logits, targets).sum().backward()
    wanted, step = targets.double().softmax(-1), 1e-5
    for row in range(3):
        for column in range(5):
            sides = []
            for sign in (1, -1):
                moved = logits.detach().double()
                moved[row, column] += sign * step
                sides.append((wanted * (wanted.log() - moved.log_softmax(-1))).sum())
            assert logits.grad is not None
            assert abs(float(logits.grad[row, column]) - float(sides[0] - sides[1]) / (2 * step)) < 1e-5


def test_without_a_gradient_nothing_is_kept() -> None:
    logits, targets, _ = drawn(torch.float32)
    with torch.no_grad():
        assert divergence.kl_div(logits, targets).grad_fn is None
