"""Stores made without a target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.store.writer import Store
from tests.pipeline.store.fake import captured, identity


@pytest.fixture
def filled(tmp_path: Path) -> Callable[..., Path]:
    """Makes a finished store of units of three samples."""

    def make(name: str = "store", units: int = 4, order: int = 1) -> Path:
        with Store.open_for_run(tmp_path / name, identity()) as store:
            for unit in list(range(units))[::order]:
                store.write_unit(unit, [captured(3 * unit + i) for i in range(3)])
            store.finalise([], 3 * units)
        return tmp_path / name

    return make
