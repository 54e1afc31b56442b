"""A small pipeline for every test."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.paths import CHECKOUT
from tests.ops.pipeline.small_pipeline import Bench, without_code


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    monkeypatch.setattr("ops.pipeline.state.code_digest", without_code)
    made = Bench(tmp_path)
    made.make()
    return made
