"""A store cut into others: each sample in just one of them, its bytes and hash as they were."""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import InputError, NoSamplesError, SettingsError, StoreDamagedError, StoreMismatchError
from pipeline.store.derive.merge import merge
from pipeline.store.derive.split import balanced_cuts, split_ids, split_parts
from pipeline.store.manifest import read_manifest
from pipeline.store.reader import StoreReader
from pipeline.store.records import Rejection
from pipeline.store.sidecar import read_sidecar
from pipeline.store.writer import Store
from tests.pipeline.store.derived import (
    counts,
    digest,
    faults,
    ids,
    make,
    names,
    rejections,
    same_file,
    shard,
    write_ids,
)
from tests.pipeline.store.fake import captured, contents, identity

UNITS = [[0, 1], [2], [], [3, 4, 5], [6]]
REJECTED = [Rejection("late", "over long: 9000 tokens, at most 8192", 9), Rejection(None, "broken JSON", 10)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make(tmp_path / "store", UNITS, rejected=REJECTED)


def test_parts_are_whole_units_in_order_and_share_the_files(store: Path, tmp_path: Path) -> None:
    built = split_parts(store, 4, tmp_path / "out")
    folders = [tmp_path / "out" / f"part-00{number}" for number in range(4)]
    assert [part.folder for part in built] == folders
    assert [ids(folder) for folder in folders] == [names(0, 1), names(2), names(3, 4, 5), names(6)]
    assert all(same_file(shard(store, old), shard(new, 0)) for old, new in zip((0, 1, 3, 4), folders, strict=True))
    assert [faults(folder) for folder in folders] == [[], [], [], []]


def test_the_account_of_the_parts_is_that_of_the_store(store: Path, tmp_path: Path) -> None:
    split_parts(store, 2, tmp_path / "out")
    parts = [tmp_path / "out" / "part-000", tmp_path / "out" / "part-001"]
    assert counts(store) == (7, 3, 10)
    assert tuple(map(sum, zip(*map(counts, parts), strict=True))) == (7, 3, 10)
    assert [record["id"] for record in rejections(parts[0])] == ["late", None, "bad-d-2"]
    assert {record["source"] for record in rejections(parts[0])} == {"d" * 64}
    assert rejections(parts[1]) == []


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.data())
@settings(derandomize=True, deadline=None)
def test_parts_differ_from_an_equal_share_by_no_more_than_a_unit(rows: list[int], data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, len(rows)))
    cuts = balanced_cuts(rows, parts)
    assert (cuts[0], cuts[-1], len(cuts)) == (0, len(rows), parts + 1)
    assert all(start < end for start, end in itertools.pairwise(cuts))
    if max(rows) * parts <= sum(rows):  # otherwise a part of no unit would be nearer
        assert all(abs(sum(rows[:cut]) - sum(rows) * n / parts) <= max(rows) / 2 for n, cut in enumerate(cuts))


def test_named_samples_and_the_others_become_two_stores(store: Path, tmp_path: Path) -> None:
    built = split_ids(store, write_ids(tmp_path, *names(2, 4, 5), "late"), tmp_path / "out")
    with_, without = tmp_path / "out" / "with", tmp_path / "out" / "without"
    assert (ids(with_), ids(without)) == (names(2, 4, 5), names(0, 1, 3, 6))
    assert (counts(with_), counts(without)) == ((3, 1, 4), (4, 2, 6))
    assert [record["id"] for record in rejections(with_)] == ["late"]
    assert (faults(with_), faults(without)) == ([], [])
    assert [(part.linked, part.rewritten) for part in built] == [(1, 1), (2, 1)]
    assert same_file(shard(store, 1), shard(with_, 0))
    assert built[0].written == shard(with_, 1).stat().st_size


def test_a_unit_that_is_cut_keeps_its_samples_bits_and_hashes(store: Path, tmp_path: Path) -> None:
    split_ids(store, write_ids(tmp_path, *names(3, 5)), tmp_path / "out")
    cut = StoreReader(tmp_path / "out" / "with")
    for number in (3, 5):
        expected, found = captured(number), cut.sample(f"sample-{number}")
        assert torch.equal(found.hidden_states, expected.hidden_states)
        assert found.input_ids.tolist() == expected.input_ids
        assert found.loss_mask.tolist() == expected.loss_mask
    old = {sample.id: sample.sha256 for sample in read_sidecar(store, 3).samples}
    assert {sample.id: sample.sha256 for sample in read_sidecar(cut.folder, 0).samples} == {
        name: old[name] for name in names(3, 5)
    }


def test_a_unit_that_is_cut_is_what_extracting_these_samples_writes(store: Path, tmp_path: Path) -> None:
    split_ids(store, write_ids(tmp_path, *names(3, 5)), tmp_path / "out")
    straight = make(tmp_path / "straight", [[3, 5]])
    assert shard(tmp_path / "out" / "with", 0).read_bytes() == shard(straight, 0).read_bytes()
    found, expected = (read_manifest(folder) for folder in (tmp_path / "out" / "with", straight))
    assert (found["layers"], found["counts"]) == (expected["layers"], expected["counts"])


def test_values_that_are_not_finite_are_counted_in_the_part_that_has_them(tmp_path: Path) -> None:
    samples = [captured(number) for number in range(3)]
    samples[1].hidden_states[0, 2, 3:5] = float("nan")
    samples[2].hidden_states[0, 0, 1] = float("inf")
    with Store.open_for_run(tmp_path / "store", identity()) as store:
        store.write_unit(0, samples)
        store.finalise([], 3)
    split_ids(tmp_path / "store", write_ids(tmp_path, *names(0, 1)), tmp_path / "out")
    parts = [read_manifest(tmp_path / "out" / name)["layers"] for name in ("with", "without")]
    assert [[layer["non_finite"] for layer in layers] for layers in parts] == [[0, 0, 2, 0], [1, 0, 0, 0]]
    assert faults(tmp_path / "out" / "with") == faults(tmp_path / "out" / "without") == []


def test_a_damaged_unit_is_not_cut_into_sound_ones(store: Path, tmp_path: Path) -> None:
    file = shard(store, 3)
    content = bytearray(file.read_bytes())
    content[-3000] ^= 1
    file.write_bytes(content)
    with pytest.raises(StoreDamagedError, match=r"000003.safetensors: sample 'sample-\d' is not what was written"):
        split_ids(store, write_ids(tmp_path, "sample-4"), tmp_path / "out")


def test_parts_of_other_samples_are_other_stores(store: Path, tmp_path: Path) -> None:
    split_parts(store, 2, tmp_path / "two")
    split_parts(store, 4, tmp_path / "four")
    made = [*(tmp_path / "two").iterdir(), *(tmp_path / "four").iterdir(), store]
    assert len({read_manifest(folder)["digests"]["data"] for folder in made}) == 7
    for number in (0, 3):
        (tmp_path / "four" / f"part-00{number}").rename(tmp_path / f"moved-{number}")
    (tmp_path / "two" / "part-000").rename(tmp_path / "four" / "part-000")
    with pytest.raises(StoreMismatchError, match=r"digests\.data"):
        split_parts(store, 4, tmp_path / "four")


@given(st.data())
@settings(derandomize=True, deadline=None, max_examples=25)
def test_any_split_merged_in_any_order_is_the_same_store(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) > 1))
    first = [sum(sizes[:unit]) for unit in range(len(sizes))]
    units = [list(range(start, start + size)) for start, size in zip(first, sizes, strict=True)]
    with tempfile.TemporaryDirectory() as name, mock.patch.object(os, "fsync"):
        folder = Path(name)
        store = make(folder / "store", units, rejected=REJECTED)
        if data.draw(st.booleans()):
            built = split_parts(store, data.draw(st.integers(1, sum(size > 0 for size in sizes))), folder / "out")
        else:
            chosen = data.draw(st.sets(st.integers(0, sum(sizes) - 1), min_size=1, max_size=sum(sizes) - 1))
            built = split_ids(store, write_ids(folder, *names(*chosen)), folder / "out")
        parts = data.draw(st.permutations([part.folder for part in built]))
        merge(folder / "merged", parts)
        assert [faults(part) for part in [*parts, folder / "merged"]] == [[]] * (len(parts) + 1)
        assert digest(folder / "merged") == digest(store)
        assert counts(folder / "merged") == counts(store)
        assert [{**record, "source": "d" * 64} for record in rejections(store)] == rejections(folder / "merged")


@pytest.mark.parametrize("parts", [-1, 0, 5])
def test_more_parts_than_units_or_none_are_refused(store: Path, tmp_path: Path, parts: int) -> None:
    with pytest.raises(SettingsError, match=f"--parts must be from 1 to 4, the units of {store}, not {parts}"):
        split_parts(store, parts, tmp_path / "out")


def test_ids_that_the_store_does_not_have_are_refused_by_name(store: Path, tmp_path: Path) -> None:
    file = write_ids(tmp_path, "sample-1", "unheard-of", "neither")
    with pytest.raises(InputError, match=f"{file} names 2 samples that {store} does not have, such as 'neither'"):
        split_ids(store, file, tmp_path / "out")
    with pytest.raises(InputError, match="names no sample"):
        split_ids(store, write_ids(tmp_path), tmp_path / "out")
    with pytest.raises(InputError, match=r"cannot read .*: No such file"):
        split_ids(store, tmp_path / "missing", tmp_path / "out")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        split_ids(store, file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("lines", [names(*range(7)), ["late"]])
def test_a_side_with_no_sample_is_refused_before_anything_is_written(
    store: Path, tmp_path: Path, lines: list[str]
) -> None:
    with pytest.raises(NoSamplesError, match="no captured sample is left for"):
        split_ids(store, write_ids(tmp_path, *lines), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_things_in_it_is_left_alone(store: Path, tmp_path: Path) -> None:
    before = contents(store)
    with pytest.raises(SettingsError, match=r"is not empty \('manifest.json' is in it\)|is not empty \('.lock'"):
        split_parts(store, 2, store)
    assert contents(store) == before
    split_parts(store, 2, tmp_path / "out")
    with pytest.raises(SettingsError, match="is a complete store already"):
        split_parts(store, 2, tmp_path / "out")
