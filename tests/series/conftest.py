"""Tiny targets, one of each shape, made once a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tiny_targets
from tests.engines import by_transformers, generator


@pytest.fixture(scope="session")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("targets")


@pytest.fixture(scope="session")
def llama(targets: Path) -> Path:
    return tiny_targets.llama(targets / "llama")


@pytest.fixture(scope="session")
def deepseek(targets: Path) -> Path:
    return tiny_targets.deepseek(targets / "deepseek")


@pytest.fixture(scope="session")
def kimi(targets: Path) -> Path:
    return tiny_targets.kimi(targets / "kimi")


@pytest.fixture(scope="session")
def llama_states(llama: Path) -> Callable:
    return by_transformers(llama)


@pytest.fixture(scope="session")
def deepseek_states(deepseek: Path) -> Callable:
    return by_transformers(deepseek)


@pytest.fixture(scope="session")
def engine(llama: Path) -> Iterator[Any]:
    """One engine for all tests that need nothing special of it: 2,048 tokens a step, layers 1, 2 and 5."""
    with generator(llama, max_num_batched_tokens=2048) as made:
        yield made
