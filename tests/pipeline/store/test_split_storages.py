"""A unit that is cut keeps its samples' stored bytes, whatever the storage: nothing is encoded a second time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pipeline.store.derive.merge import merge
from pipeline.store.derive.split import split_ids
from pipeline.store.reader import StoreReader
from pipeline.store.sidecar import read_sidecar
from tests.pipeline.store.derived import digest, faults, make, names, shard, write_ids

UNITS = [[0, 1, 2], [3, 4, 5], [6]]


@pytest.fixture(params=["bf16", "bf16-zstd", "fp8"])
def storage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_cut_shard_is_what_extracting_these_samples_writes(tmp_path: Path, storage: str) -> None:
    store = make(tmp_path / "store", UNITS, storage=storage)
    split_ids(store, write_ids(tmp_path, *names(3, 5)), tmp_path / "out")
    straight = make(tmp_path / "straight", [[3, 5]], storage=storage)
    assert shard(tmp_path / "out" / "with", 0).read_bytes() == shard(straight, 0).read_bytes()
    assert faults(tmp_path / "out" / "with") == faults(tmp_path / "out" / "without") == []


def test_split_and_merged_it_is_the_same_store(tmp_path: Path, storage: str) -> None:
    store = make(tmp_path / "store", UNITS, storage=storage)
    split_ids(store, write_ids(tmp_path, *names(0, 2, 4)), tmp_path / "out")
    merge(tmp_path / "merged", [tmp_path / "out" / "without", tmp_path / "out" / "with"])
    assert digest(tmp_path / "merged") == digest(store)
    assert faults(tmp_path / "merged") == []
    before, after = StoreReader(store), StoreReader(tmp_path / "merged")
    for name in names(*range(7)):
        assert torch.equal(before.sample(name).hidden_states, after.sample(name).hidden_states)


def test_the_error_of_a_cut_unit_is_that_of_the_unit_it_comes_from(tmp_path: Path) -> None:
    store = make(tmp_path / "store", UNITS, storage="fp8")
    split_ids(store, write_ids(tmp_path, *names(3, 5)), tmp_path / "out")
    errors = [layer.relative_error for layer in read_sidecar(store, 1).layers]
    assert [layer.relative_error for layer in read_sidecar(tmp_path / "out" / "with", 0).layers] == errors
    assert all(error and error > 1e-3 for error in errors)
