"""A conditioned projection trains in other units, and is stored as if nothing had been done to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.store.dataset import HiddenStateDataset
from pipeline.train import condition
from tests.train.tiny_drafts import HIDDEN, OUTPUTS, Sample, make_draft, make_store, make_target

AUX = (len(OUTPUTS) - 1) * HIDDEN


@pytest.fixture
def dataset(tmp_path: Path) -> HiddenStateDataset:
    target = make_target(tmp_path / "target")
    rng = np.random.default_rng(0)
    samples = [
        Sample(f"s{number}", rng.integers(2, 24, 20).tolist(), [0] * 5 + [1] * 12 + [0] * 3) for number in range(30)
    ]
    return HiddenStateDataset(make_store(tmp_path / "store", target, tmp_path / "target", samples))


def pairs(dataset: HiddenStateDataset, numbers: list[int]) -> tuple[Any, Any]:
    """Row by row: the auxiliary states of the token before a trained one, and that one's last state, made of size 1."""
    inputs, outputs = [], []
    for number in numbers:
        sample = dataset[number]
        states = sample["hidden_states"].double().numpy()
        for row in range(1, len(states)):
            if sample["loss_mask"][row]:
                inputs.append(states[row - 1, :-1].reshape(-1))
                last = states[row, -1]
                outputs.append(last / np.sqrt(np.mean(last**2)))
    return np.array(inputs), np.array(outputs)


def test_the_scales_are_the_powers_of_two_next_to_each_dimensions_root_mean_square(dataset: HiddenStateDataset) -> None:
    inputs, _ = pairs(dataset, [0, 3, 5])
    scales = condition.measure(dataset, [0, 3, 5]).scales.numpy()
    assert set(np.frexp(scales)[0]) == {0.5}
    assert np.all(np.abs(np.log2(np.sqrt(np.mean(inputs**2, axis=0)) / scales)) <= 0.5 + 1e-4)


def test_the_start_is_the_ridge_regression_to_the_next_last_state(dataset: HiddenStateDataset) -> None:
    numbers = list(range(20))
    found = condition.measure(dataset, numbers)
    inputs, outputs = pairs(dataset, numbers)
    # Ridge regression as ordinary least squares with one more row for each unknown.
    scaled, ridge = inputs / found.scales.numpy(), np.sqrt(1e-3 * len(inputs))
    expected, *_ = np.linalg.lstsq(
        np.vstack([scaled, ridge * np.eye(AUX)]), np.vstack([outputs, np.zeros((AUX, HIDDEN))]), rcond=None
    )
    assert np.allclose(found.weight.numpy(), expected.T, atol=2e-3)
    assert np.mean((scaled @ found.weight.numpy().T - outputs) ** 2) < 0.6 * np.mean(outputs**2)


def test_what_is_stored_gives_the_same_numbers_for_unscaled_states(tmp_path: Path, dataset: HiddenStateDataset) -> None:
    draft, plain = (make_draft(tmp_path / name, tmp_path / "target") for name in ("one", "two"))
    condition.apply(draft, condition.measure(dataset, [0, 1, 2]), start=True)
    with torch.no_grad():
        draft.fc.weight.add_(torch.randn(HIDDEN, AUX, generator=torch.Generator().manual_seed(1)))
    stored = {name: value.clone() for name, value in draft.state_dict().items()}
    assert not torch.equal(stored["fc.weight"], draft.fc.weight)
    plain.load_state_dict(stored)
    states = dataset[4]["hidden_states"][:, :-1].flatten(1)
    assert torch.allclose(draft.fc(states), plain.fc(states), rtol=1e-5, atol=1e-5)


def test_loading_what_was_stored_gives_back_every_bit(tmp_path: Path, dataset: HiddenStateDataset) -> None:
    draft = make_draft(tmp_path / "one", tmp_path / "target")
    condition.apply(draft, condition.measure(dataset, [0, 1, 2]), start=True)
    before = draft.fc.weight.detach().clone()
    stored = {name: value.clone() for name, value in draft.state_dict().items()}
    with torch.no_grad():
        draft.fc.weight.zero_()
    draft.load_state_dict(stored)
    assert torch.equal(draft.fc.weight, before)


def test_without_the_regression_a_draft_begins_as_it_was(tmp_path: Path, dataset: HiddenStateDataset) -> None:
    draft = make_draft(tmp_path / "one", tmp_path / "target")
    before = draft.state_dict()["fc.weight"].clone()
    condition.apply(draft, condition.measure(dataset, [0]), start=False)
    assert torch.equal(draft.state_dict()["fc.weight"], before)


def test_noise_is_added_while_training_alone_and_is_as_large_as_said(
    tmp_path: Path, dataset: HiddenStateDataset
) -> None:
    draft = make_draft(tmp_path / "one", tmp_path / "target")
    found = condition.measure(dataset, [0, 1, 2])
    condition.apply(draft, found, start=False, noise=0.5)
    draft.fc = torch.nn.utils.parametrize.register_parametrization(  # its output is then the scaled states' sum
        draft.fc, "weight", _Ones()
    )
    states = dataset[4]["hidden_states"][:, :-1].flatten(1).repeat(200, 1)
    torch.manual_seed(0)
    draft.train()
    noise = (draft.fc(states) - (states / found.scales).sum(1, keepdim=True))[:, 0]
    assert abs(float(noise.std()) / (0.5 * AUX**0.5) - 1) < 0.05
    assert abs(float(noise.mean())) < 0.1 * AUX**0.5
    draft.eval()
    assert torch.allclose(draft.fc(states)[:, 0], (states / found.scales).sum(1), rtol=1e-4, atol=1e-4)


class _Ones(torch.nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(weight)


def test_the_start_expects_the_noise(dataset: HiddenStateDataset) -> None:
    numbers = list(range(20))
    found = condition.measure(dataset, numbers, noise=0.5)
    inputs, outputs = pairs(dataset, numbers)
    scaled = inputs / found.scales.numpy()
    # The same rows many times, each with noise of its own, by ordinary least squares.
    rng = np.random.default_rng(0)
    noisy = np.vstack([scaled + 0.5 * rng.standard_normal(scaled.shape) for _ in range(400)])
    expected, *_ = np.linalg.lstsq(noisy, np.vstack([outputs] * 400), rcond=None)
    assert np.allclose(found.weight.numpy(), expected.T, atol=2e-2)
