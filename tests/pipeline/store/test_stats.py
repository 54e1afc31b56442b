"""What stats says of a store, computed here from the samples themselves."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import StoreDamagedError
from pipeline.store.records import Rejection
from pipeline.store.stats import spread, store_stats
from pipeline.store.writer import Store
from tests.pipeline.store.derived import make, shard
from tests.pipeline.store.fake import LAYERS, captured, identity

UNITS = [[0, 1, 2], [], [3], [4, 5, 6, 7, 8, 9]]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    rejected = [Rejection(f"r{n}", f"over long: {n}000 tokens, at most 512", 20 + n) for n in (1, 2, 3)]
    return make(tmp_path / "store", UNITS, rejected=rejected, settings={"tp_size": 1, "token_budget": 200})


def test_its_figures_are_those_of_the_samples(store: Path) -> None:
    found = store_stats(store)
    samples = [captured(number) for number in range(10)]
    lengths = [len(sample.input_ids) for sample in samples]
    assert found.lengths is not None
    assert (found.lengths.least, found.lengths.most, found.lengths.mean) == (
        min(lengths),
        max(lengths),
        sum(lengths) / 10,
    )
    assert found.lengths.median == sorted(lengths)[4]
    assert found.trained_share == sum(sum(sample.loss_mask) for sample in samples) / sum(lengths)
    size = sum(shard(store, unit).stat().st_size for unit in (0, 2, 3))
    assert found.bytes_per_row == size / sum(lengths)
    assert found.token_fill == sum(lengths) / (3 * 200)
    assert found.unit_samples is not None
    assert (found.unit_samples.least, found.unit_samples.median, found.unit_samples.most) == (1, 3, 6)


def test_norms_are_those_of_the_states(store: Path) -> None:
    states = np.concatenate([captured(number).hidden_states.float().numpy() for number in range(10)])
    norms = np.sqrt((states.astype(np.float64) ** 2).sum(axis=-1))
    found = store_stats(store).layers
    assert [(layer["output"], layer["input"]) for layer in found] == [(layer, layer + 1) for layer in LAYERS]
    for at, layer in enumerate(found):
        figures = [layer["norm_min"], layer["norm_mean"], layer["norm_max"]]
        assert np.allclose(figures, [norms[:, at].min(), norms[:, at].mean(), norms[:, at].max()], rtol=1e-6)


def test_like_reasons_are_counted_together(store: Path) -> None:
    assert list(store_stats(store).rejected.items()) == [
        ("over long: … tokens, at most …", 3),
        ("non-finite states at layer …", 1),
    ]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60))
@settings(derandomize=True, deadline=None)
def test_quantiles_are_the_smallest_value_with_that_share_at_or_below(values: list[int]) -> None:
    found = spread(values)
    assert found is not None
    shares = {"p05": 5, "p25": 25, "median": 50, "p75": 75, "p95": 95}
    for name, percent in shares.items():
        enough = [v for v in values if 100 * sum(other <= v for other in values) >= percent * len(values)]
        assert getattr(found, name) == min(enough)
    assert math.isclose(found.mean, float(np.mean(values)))


def test_no_states_are_read(store: Path) -> None:
    before = store_stats(store)
    file = shard(store, 3)
    file.write_bytes(bytes(file.stat().st_size))
    assert store_stats(store) == before


def test_a_store_of_no_captured_sample_has_no_lengths(tmp_path: Path) -> None:
    found = store_stats(make(tmp_path / "store", [[]]))
    assert (found.lengths, found.bytes_per_row, found.trained_share, found.layers) == (None, None, None, [])


def test_an_unfinished_store_is_refused(tmp_path: Path) -> None:
    with Store.open_for_run(tmp_path / "store", identity()) as half:
        half.write_unit(0, [captured(0)])
    with pytest.raises(StoreDamagedError, match="is not finished"):
        store_stats(tmp_path / "store")
