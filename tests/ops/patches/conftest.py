"""Fixtures for the patch tool's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ops.errors import UserError
from ops.patches.apply import apply

from .bird import Bird

Refuse = Callable[..., None]


@pytest.fixture
def bird(tmp_path: Path) -> Bird:
    return Bird(tmp_path)


@pytest.fixture
def refuse(bird: Bird) -> Refuse:
    """Apply must fail with this code and these words in one line, and leave everything as it was."""

    def check(series: Path, site: Path, code: int, *words: str) -> None:
        before = bird.snapshot(bird.root)
        with pytest.raises(UserError) as caught:
            apply(series, site)
        assert caught.value.exit_code == code, caught.value
        message = str(caught.value)
        assert "\n" not in message
        for word in words:
            assert word in message
        assert bird.snapshot(bird.root) == before

    return check
