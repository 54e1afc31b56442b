"""The environment of these tests is the train stack, whole: its versions, and speculators patched to the byte."""

from __future__ import annotations

import sysconfig
from importlib.metadata import version
from pathlib import Path

import torch

from ops.patches.series import load
from ops.patches.verify import verify
from ops.stack.stages import TRAIN
from tests.installed import identity
from tests.necessity import series_of

SERIES = series_of("speculators-0.9.0")


def test_it_says_that_it_is_the_train_stack() -> None:
    assert (identity()["name"], identity()["accelerator"]) == (TRAIN, "cpu")
    assert identity()["patches"] == [{"name": patch.name, "sha256": patch.sha256} for patch in load(SERIES).patches]


def test_speculators_is_patched_to_the_byte() -> None:
    told = verify(SERIES, Path(sysconfig.get_path("purelib")))
    assert told.startswith(f"speculators 0.9.0: {len(load(SERIES).patches)} patches applied")


def test_its_torch_is_the_one_that_the_cuda_image_has() -> None:
    assert (torch.__version__.split("+")[0], torch.version.cuda) == ("2.10.0", "12.8")
    assert version("transformers") == "5.19.0"
