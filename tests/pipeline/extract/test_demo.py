"""On the demo target in float32: captured states against transformers', and what the target predicts from them."""

from __future__ import annotations

import json

import pytest
import torch

from pipeline.store.reader import StoreReader
from pipeline.verify.reference import ReferenceModel
from tests.pipeline.conftest import CHECKOUT, run_stage

RANDOM = "random-1024"


@pytest.fixture(scope="module")
def prepared(demo_target, tmp_path_factory):
    """Every fifth example conversation, prepared, and 1,024 random tokens."""
    folder = tmp_path_factory.mktemp("demo")
    lines = (CHECKOUT / "examples" / "conversations.jsonl").read_text().splitlines(keepends=True)
    (folder / "some.jsonl").write_text("".join(lines[::5]))
    flags = ("--input", folder / "some.jsonl", "--model-path", demo_target, "--output-dir", folder)
    run_stage("prepare", *flags).check_returncode()
    ids = torch.randint(0, 49152, (1024,), generator=torch.Generator().manual_seed(5)).tolist()
    data = folder / "with-random.jsonl"
    sample = {"id": RANDOM, "input_ids": ids, "loss_mask": [1] * 1024}
    data.write_text((folder / "tokenized.jsonl").read_text() + json.dumps(sample) + "\n")
    return data


@pytest.fixture(scope="module")
def store(demo_target, prepared, tmp_path_factory, stage):
    folder = tmp_path_factory.mktemp("demo-store") / "store"
    flags = ("--model-path", demo_target, "--prepared-data", prepared, "--output-dir", folder, "--dtype", "float32")
    code, _, errors = stage("extract", *flags)
    assert code == 0, errors
    return folder


@pytest.fixture(scope="module")
def errors(store, demo_target):
    """For each sample the worst relative error of its layers, and the worst difference of a log-probability."""
    reader, model = StoreReader(store), ReferenceModel(demo_target, "float32")
    layers = reader.manifest["layer_ids"]["output"]
    found = {}
    for name in reader.ids():
        sample = reader.sample(name)
        truth, logits = model.states_and_logits(sample.input_ids.tolist(), layers)
        error = (sample.hidden_states - truth).norm(dim=(0, 2)) / truth.norm(dim=(0, 2))
        predicted = model.logits_from_last(sample.hidden_states[:, -1])
        difference = predicted.log_softmax(-1) - logits.log_softmax(-1)
        found[name] = float(error.max()), float(difference.abs().max())
    return found


def test_the_default_layers_are_captured(store):
    manifest = StoreReader(store).manifest
    assert manifest["layer_ids"] == {"output": [1, 14, 26, 29], "input": [2, 15, 27, 30]}
    assert (manifest["dtype"], manifest["hidden_size"]) == ("float32", 576)


def test_states_of_conversations_are_within_1e_5(errors):
    conversations = {name: error for name, (error, _) in errors.items() if name != RANDOM}
    assert len(conversations) >= 20
    assert max(conversations.values()) <= 1e-5


def test_states_of_random_tokens_are_within_3e_5(errors):
    assert errors[RANDOM][0] <= 3e-5


def test_log_probabilities_from_the_last_state_are_within_1e_3(errors):
    assert max(difference for _, difference in errors.values()) <= 1e-3
