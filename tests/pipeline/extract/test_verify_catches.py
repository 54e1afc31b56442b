"""`verify --reference` on stores that the real engine made: right ones pass, one made without a fix does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import speculators

from ops.patches.without import without
from tests import tiny_targets
from tests.engines import random_samples
from tests.pipeline.extract.conftest import CHECKOUT, write_samples

SERIES = CHECKOUT / "patches" / "speculators-0.3.0"
ROTARY = "0015-no-rotary-kernel-on-cpu.patch"
LENGTHS = [40, 1, 300, 17, 120, 64]


@pytest.fixture(params=["deepseek", "kimi"])
def flags(request, tmp_path):
    target = getattr(tiny_targets, request.param)(tmp_path / request.param)
    prepared = write_samples(tmp_path / "tokenized.jsonl", random_samples(LENGTHS))
    return "--model-path", target, "--prepared-data", prepared, "--output-dir", tmp_path / "store"


def test_the_states_of_a_mixture_of_experts_are_right(stage, flags, tmp_path):
    code, _, errors = stage("extract", *flags)
    assert code == 0, errors
    code, output, errors = stage("verify", tmp_path / "store", "--reference")
    assert code == 0, output + errors


def test_states_made_without_the_rotary_fix_are_found_out(stage, flags, tmp_path):
    overlay = without(SERIES, Path(speculators.__file__).parents[1], tmp_path / "overlay", ROTARY)
    code, _, errors = stage("extract", *flags, PYTHONPATH=os.pathsep.join([str(overlay), str(CHECKOUT)]))
    assert code == 0, errors
    code, output, errors = stage("verify", tmp_path / "store", "--reference")
    assert code == 46, output + errors
    assert "layer" in errors
