"""The demo target's tokenizer, and prepared samples as text."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from pipeline.prepare.mask import Masked, mask
from pipeline.prepare.template import Template

Messages = list[dict[str, str]]


@pytest.fixture(scope="session")
def _tokenizer(demo_target: Path) -> Any:
    return AutoTokenizer.from_pretrained(demo_target)


@pytest.fixture
def tokenizer(_tokenizer: Any) -> Any:
    """The demo target's tokenizer; a test may set another chat template."""
    own = _tokenizer.chat_template
    yield _tokenizer
    _tokenizer.chat_template = own


@pytest.fixture
def masked(tokenizer: Any) -> Callable[..., Masked]:
    """Masks a conversation, by the demo target's own template or another one."""

    def make(messages: Messages, template: str | None = None) -> Masked:
        tokenizer.chat_template = template or tokenizer.chat_template
        return mask(tokenizer, Template(tokenizer).render(messages))

    return make


@pytest.fixture
def trained(tokenizer: Any) -> Callable[[Masked], str]:
    """The text of the trained tokens."""

    def text(sample: Masked) -> str:
        both = zip(sample.input_ids, sample.loss_mask, strict=True)
        return str(tokenizer.decode([token for token, one in both if one]))

    return text


@pytest.fixture
def target(demo_target: Path, tmp_path: Path) -> Path:
    """The demo target's tokenizer files in a folder that a test may change."""
    folder = tmp_path / "target"
    folder.mkdir()
    for path in demo_target.iterdir():
        if path.suffix in {".json", ".jinja"}:
            shutil.copy(path, folder)
    return folder


def talk(*turns: str) -> Messages:
    """User and assistant in turn."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(turns)]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
