"""stack.toml: what is wrong in it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.errors import StackError
from ops.stack.model import STACKS, Stack, load, parse
from tests.ops.small_stack import TOML

FOLDER = Path("stacks/small")


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ('name = "small"', "", "'name'"),
        ('name = "small"', 'name = "other"', "name is 'other', the folder's is 'small'"),
        ('name = "small"', 'name = "small"\ncolour = "red"', "'colour'"),
        ('name = "small"', "name = 3", "name: must be a text"),
        ("installed-gib = 1\n\n[cuda]", "installed-gib = true\n\n[cuda]", r"\[cpu\] installed-gib"),
        ("requirements = []", 'requirements = "torch"', r"\[cuda\] requirements: must be a list"),
        ("mdurl==0.1.2", "mdurl===== 2", "is no requirement"),
        (">=3.10,<3.14", "three", r"\[cpu\] python: 'three'"),
        ('sha256 = "f066', 'sha256 = "F066', r"\[cuda\] vllm sha256"),
        ('version = "0.16.0"', 'version = "0.16.0"\ncommit = "abc"', "commit and url, a release neither"),
        ('name = "small"', 'name = "small', "not TOML"),
    ],
)
def test_what_is_wrong_is_named(before: str, after: str, named: str) -> None:
    assert before in TOML
    with pytest.raises(StackError, match=named) as caught:
        parse(TOML.replace(before, after), FOLDER)
    assert "\n" not in str(caught.value)


def test_an_unknown_stack_is_answered_with_the_known_ones() -> None:
    with pytest.raises(StackError, match="known stacks: extract"):
        load(STACKS / "extrct")


def test_an_accelerator_that_is_not_there_is_named(extract: Stack) -> None:
    with pytest.raises(StackError, match=r"no \[rocm\]; it has cpu, cuda"):
        extract.accelerator("rocm")


def test_the_extract_stack_pins_what_the_main_job_was_proven_with(extract: Stack) -> None:
    cuda = extract.accelerator("cuda")
    assert cuda.base_image.endswith("@sha256:520292dbb4f755fd360766059e62956e9379485d9e073bbd2f6e3c20c270ed66")
    assert cuda.cuda == "12.8"
    (flash_attn,) = cuda.build
    assert (flash_attn.name, flash_attn.environment) == ("flash-attn", {"FLASH_ATTENTION_FORCE_BUILD": "TRUE"})
