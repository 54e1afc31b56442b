"""What is imported in an image is what its stack's stages need, and these stages themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ops.image.errors import SmokeError
from ops.image.imports import IMPORTS, check_imports, check_platform
from ops.stack.lockfile import read_lock
from ops.stack.model import STACKS, load
from ops.stack.stages import STACK_NAMES


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image whose Python is this one, with a stage of the train stack and one of serve, and an empty torch."""
    (tmp_path / "env" / "bin").mkdir(parents=True)
    python = tmp_path / "env" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    pipeline = tmp_path / "src" / "pipeline"
    for name in ("train", "evaluate"):
        (pipeline / name).mkdir(parents=True)
        (pipeline / name / "command.py").touch()
    (pipeline / "__main__.py").write_text("STAGES = {'train': '', 'evaluate': ''}\n", encoding="utf-8")
    (tmp_path / "src" / "torch.py").touch()
    return tmp_path


def test_the_stages_of_its_own_stack_are_imported(image: Path) -> None:
    packages = ["torch", "numpy"]
    assert check_imports("train", packages, image) == ["torch", "pipeline.__main__", "pipeline.train.command"]
    assert check_imports("serve", packages, image) == ["torch", "pipeline.__main__", "pipeline.evaluate.command"]


def test_a_stage_that_cannot_be_imported_is_named_with_the_reason(image: Path) -> None:
    (image / "src" / "pipeline" / "train" / "command.py").write_text("import no_such_module\n", encoding="utf-8")
    with pytest.raises(SmokeError, match=r"pipeline\.train\.command cannot be imported: .*no_such_module"):
        check_imports("train", ["torch"], image)
    assert check_imports("serve", ["torch"], image)


def test_a_package_the_stages_need_that_cannot_be_imported_is_named(image: Path) -> None:
    with pytest.raises(SmokeError, match=r"speculators\.train\.trainer cannot be imported"):
        check_imports("train", ["torch", "speculators"], image)


def test_an_image_without_a_stage_of_its_stack_fails(image: Path) -> None:
    with pytest.raises(SmokeError, match="no stage of the extract stack"):
        check_imports("extract", ["torch"], image)


def test_in_a_light_image_only_the_pipeline_is_imported(image: Path) -> None:
    assert check_imports("extract", ["speculators"], image) == ["pipeline.__main__"]


def test_an_image_without_vllm_is_not_asked_for_its_platform(image: Path) -> None:
    told = check_platform(["torch"], {"stack": {"accelerator": "cpu"}}, image)
    assert told == "platform not asked: no vLLM in this image"


@pytest.mark.parametrize("name", STACK_NAMES)
def test_what_is_imported_is_pinned_by_the_stack(name: str) -> None:
    stack = load(STACKS / name)
    pinned = {entry.name for part in stack.accelerators for entry in read_lock(stack.lock(part)).entries}
    assert IMPORTS[name].keys() <= pinned
