"""Through loader, draft and loss, with every attention backend: what is read from a store against numpy in float64.

test_loss.py follows one sample; here two samples of one store are packed into one batch, the projection conditioned and
later steps weighted less. The first is the one that test_rows.py works out by hand:

    token          0   1   2   3   4   5   6   7        row            0   1   2   3   4   5   6
    x(i)           3   5   7   9   2   4   6   1        trained        .   .   x   x   x   .   .
    its own        .   .   .   x   x   x   x   .

Three steps of training-time test: in step k row j is given x(j+1+k) and learns the target's distribution after it, the
head over the normed last state of token j+1+k, where row j+k is trained:

    step 0   rows 2 3 4    given 9 2 4    last states of tokens 3 4 5
    step 1   rows 1 2 3    given 9 2 4    last states of tokens 3 4 5
    step 2   rows 0 1 2    given 9 2 4    last states of tokens 3 4 5

A row attends, in step 0, to the rows of its sample up to itself; in step k to the same and to its own step 1 to k.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from speculators.models.eagle3 import Eagle3DraftModel

from pipeline.train import condition, run
from pipeline.train.draft import build, draft_config
from pipeline.train.job import Job, settle
from pipeline.train.settings import parse
from tests.train import making
from tests.train.conftest import arguments

FIRST = making.sample("first", [3, 5, 7, 9, 2, 4, 6, 1], [0, 0, 0, 1, 1, 1, 1, 0])
SECOND = making.sample("second", [8, 2, 11, 5, 9, 3], [0, 1, 1, 1, 1, 1])
TRAINED = [0, 0, 1, 1, 1, 0, 0, *(0, 0, 1, 1, 0)]
"""of the second sample: rows 0 and 1 are left to the sample before, row 4 predicts a token that is not there"""
GIVEN = [
    [5, 7, 9, 2, 4, 6, 1, 2, 11, 5, 9, 3],
    [7, 9, 2, 4, 6, 1, 2, 11, 5, 9, 3, 0],
    [9, 2, 4, 6, 1, 2, 11, 5, 9, 3, 0, 0],
]
"""what each row is given, by step; beyond the sample's end it does not matter, nothing is learnt there"""
ROWS, SAMPLE = 12, np.array([0] * 7 + [1] * 5)
PLACE = np.array([*range(1, 8), *range(1, 6)])


@pytest.fixture
def job(target: Path, tmp_path: Path) -> Job:
    samples = [FIRST, SECOND, *(making.sample(f"other-{number}", [1, 2, 3, 4], [0, 1, 1, 1]) for number in range(6))]
    store = making.store(tmp_path / "store", target, samples)
    found = settle(parse(arguments(tmp_path / "out", target=target, store=store, ttt_decay=0.5, dtype="float32")))
    return replace(found, training=[0, 1], validation=[2])


@pytest.fixture
def draft(job: Job) -> Eagle3DraftModel:
    made = build(job.config, job.vocabulary, job.target, job.settings)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in made.parameters():  # large enough that every part counts, and no norm all ones
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return made


def test_a_batch_is_what_paper_says(job: Job):
    (batch,) = run._loader(job, validation=False)
    order = batch["input_ids"][0].tolist()
    assert order == GIVEN[0]
    assert batch["loss_mask"][0].tolist() == [bool(trained) for trained in TRAINED]
    assert batch["document_ids"][0].tolist() == SAMPLE.tolist()
    assert batch["position_ids"][0].tolist() == PLACE.tolist()
    states = torch.cat([FIRST.hidden_states[:-1], SECOND.hidden_states[:-1]])
    after = torch.cat([FIRST.hidden_states[1:], SECOND.hidden_states[1:]])
    assert torch.equal(batch["hidden_states"][0], states[:, :3].flatten(1))
    assert torch.equal(batch["verifier_last_hidden_states"][0], after[:, 3])


@pytest.mark.parametrize("attention", ["sdpa", "eager", "flex"])
def test_the_loss_is_that_of_an_independent_computation(job: Job, draft: Eagle3DraftModel, attention: str):
    weights = draft.state_dict()
    job = with_attention(job, attention)
    draft = build(job.config, job.vocabulary, job.target, job.settings)
    draft.load_state_dict(weights)
    condition.apply(draft, condition.measure(job.dataset, job.training), start=False)
    (batch,) = run._loader(job, validation=False)
    call = run._config(job, run.Kept(job.settings.output_dir, 2)).train_call_kwargs
    _, loss, metrics = draft(**{name: value for name, value in batch.items() if torch.is_tensor(value)}, **call)
    expected = losses({name: value.double().numpy() for name, value in draft.state_dict().items()})
    found = [float(metrics[f"loss_{step}_sum"]) for step in range(3)]
    assert found == pytest.approx(expected, rel=1e-6)
    assert float(loss.detach()) == pytest.approx(sum(expected), rel=1e-6)


def with_attention(job: Job, attention: str) -> Job:
    config = draft_config(job.target, job.settings, job.layers, job.vocabulary.size, attention)
    return replace(job, attention=attention, config=config)


def losses(w: dict[str, Any]) -> list[float]:
    """The loss of each step, in float64: decay to the power of the step times the mean over trained rows of KL."""
    states = np.concatenate([sample.hidden_states.double().numpy()[:-1] for sample in (FIRST, SECOND)])
    last = np.concatenate([sample.hidden_states.double().numpy()[1:, 3] for sample in (FIRST, SECOND)])
    targets = softmax(norm(last, w["verifier_norm.weight"]) @ w["verifier_lm_head.weight"].T)
    hidden = states[:, :3].reshape(ROWS, -1) @ w["fc.weight"].T
    keys: list[Any] = []
    values: list[Any] = []
    result = []
    for step, given in enumerate(GIVEN):
        hidden = layer(w, w["embed_tokens.weight"][given], hidden, PLACE + step, keys, values)
        proposed = softmax(norm(hidden, w["norm.weight"]) @ w["lm_head.weight"].T)
        rows = np.flatnonzero(TRAINED)
        p, q = targets[rows], proposed[rows - step]
        divergence = (p * (np.log(p) - np.log(q))).sum(1)
        result.append(0.5**step * divergence.sum() / (len(rows) + 1e-5))
    return result


def layer(w: dict[str, Any], embeddings: Any, hidden: Any, places: Any, keys: list[Any], values: list[Any]) -> Any:
    """The draft's one decoder layer; keys and values of the steps so far are kept by the caller."""
    both = np.concatenate(
        [norm(embeddings, w["layers.0.input_layernorm.weight"]), norm(hidden, w["layers.0.hidden_norm.weight"])], 1
    )
    q, k, v = ((both @ w[f"layers.0.self_attn.{name}_proj.weight"].T).reshape(ROWS, 2, 8) for name in "qkv")
    keys.append(rotated(k, places))
    values.append(v)
    q = rotated(q, places)
    mixed = np.zeros_like(q)
    for row in range(ROWS):
        seen = [(0, other) for other in range(row + 1) if SAMPLE[other] == SAMPLE[row]]
        seen += [(step, row) for step in range(1, len(keys))]
        for head in range(2):
            scores = np.array([q[row, head] @ keys[step][other, head] for step, other in seen]) / np.sqrt(8)
            shares = softmax(scores[None])[0]
            parts = zip(shares, seen, strict=True)
            mixed[row, head] = sum(share * values[step][other, head] for share, (step, other) in parts)
    hidden = hidden + mixed.reshape(ROWS, 16) @ w["layers.0.self_attn.o_proj.weight"].T
    normed = norm(hidden, w["layers.0.post_attention_layernorm.weight"])
    gate = normed @ w["layers.0.mlp.gate_proj.weight"].T
    up = normed @ w["layers.0.mlp.up_proj.weight"].T
    return hidden + (gate / (1 + np.exp(-gate)) * up) @ w["layers.0.mlp.down_proj.weight"].T


def rotated(x: Any, places: Any) -> Any:
    """Rotary embedding of base 10,000: pairs (i, i + half) turned by place / base ** (i / half)."""
    angles = places[:, None] / 10_000 ** (np.arange(4) / 4)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., :4], x[..., 4:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def norm(x: Any, weight: Any) -> Any:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
