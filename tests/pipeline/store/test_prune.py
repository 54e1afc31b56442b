"""A pruned store lacks just what was to go, says why, and leaves the old one as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import InputError, NoSamplesError, SettingsError
from pipeline.store.derive.prune import Wanted, prune
from pipeline.store.manifest import read_manifest
from pipeline.store.records import CapturedSample, Rejection
from pipeline.store.writer import Store
from tests.pipeline.store.derived import (
    counts,
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

UNITS = [[0, 1, 2], [3], [4, 5], [6, 7]]
REJECTED = [Rejection("gone", "empty: no tokens", 3)]
ROWS = {number: len(captured(number).input_ids) for number in range(8)}

WITHOUT_TORCH = """
import sys
from pipeline.__main__ import main
assert main(sys.argv[1:]) == 0
assert "torch" not in sys.modules and "numpy" not in sys.modules
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make(tmp_path / "store", UNITS, rejected=REJECTED)


def test_named_samples_go_and_are_listed_with_the_reason(store: Path, tmp_path: Path) -> None:
    built = prune(store, Wanted(ids_file=write_ids(tmp_path, *names(1, 3), "gone")), tmp_path / "out")
    assert ids(tmp_path / "out") == names(0, 2, 4, 5, 6, 7)
    assert rejections(tmp_path / "out") == [
        {"id": "sample-1", "line": None, "reason": "pruned: named in ids.txt"},
        {"id": "sample-3", "line": None, "reason": "pruned: named in ids.txt"},
        {"id": "gone", "line": 3, "reason": "empty: no tokens", "source": "d" * 64},
    ]
    assert counts(tmp_path / "out") == (6, 3, 9)
    assert faults(tmp_path / "out") == []
    assert (built.linked, built.copied, built.rewritten) == (2, 0, 1)
    assert same_file(shard(store, 2), shard(tmp_path / "out", 1))


def test_the_old_store_stays_as_it_is(store: Path, tmp_path: Path) -> None:
    before = contents(store)
    prune(store, Wanted(ids_file=write_ids(tmp_path, *names(0, 6))), tmp_path / "out")
    assert contents(store) == before
    assert faults(store) == []


@pytest.mark.parametrize("limit", sorted(set(ROWS.values())))
def test_a_limit_itself_is_neither_shorter_nor_longer(store: Path, tmp_path: Path, limit: int) -> None:
    for name, stays in (
        ("shorter", {n for n in ROWS if ROWS[n] >= limit}),
        ("longer", {n for n in ROWS if ROWS[n] <= limit}),
    ):
        prune(store, Wanted(**{f"{name}_than": limit}), tmp_path / name)
        assert ids(tmp_path / name) == names(*sorted(stays))
        assert faults(tmp_path / name) == []
        pruned = {record["id"]: record["reason"] for record in rejections(tmp_path / name) if record["line"] is None}
        assert pruned == {
            f"sample-{n}": f"pruned: {ROWS[n]} tokens, {name} than {limit}" for n in ROWS if n not in stays
        }


def test_samples_that_teach_nothing_go(tmp_path: Path) -> None:
    def masked(number: int, mask: int) -> CapturedSample:
        sample = captured(number)
        last = [*[0] * (len(sample.input_ids) - 1), mask]
        return CapturedSample(sample.id, sample.input_ids, last, sample.hidden_states)

    with Store.open_for_run(tmp_path / "store", identity()) as store:
        store.write_unit(0, [masked(0, 0), masked(1, 1), masked(2, 0)])
        store.write_unit(1, [masked(3, 1)])
        store.write_unit(2, [masked(4, 0)])
        store.finalise([], 5)
    prune(tmp_path / "store", Wanted(untrained=True), tmp_path / "out")
    assert ids(tmp_path / "out") == names(1, 3)
    assert {record["reason"] for record in rejections(tmp_path / "out")} == {"pruned: no trained token"}
    assert read_manifest(tmp_path / "out")["counts"]["trained_tokens"] == 2


def test_conditions_add_up_and_each_sample_goes_for_one_reason(store: Path, tmp_path: Path) -> None:
    shortest = min(ROWS, key=lambda n: ROWS[n])
    longest = max(ROWS, key=lambda n: ROWS[n])
    named = write_ids(tmp_path, f"sample-{shortest}")
    wanted = Wanted(ids_file=named, shorter_than=ROWS[shortest] + 1, longer_than=ROWS[longest] - 1)
    prune(store, wanted, tmp_path / "out")
    assert set(ids(tmp_path / "out")) == set(names(*ROWS)) - set(names(shortest, longest))
    reasons = {record["id"]: record["reason"] for record in rejections(tmp_path / "out")}
    assert reasons[f"sample-{shortest}"] == "pruned: named in ids.txt"
    assert reasons[f"sample-{longest}"] == f"pruned: {ROWS[longest]} tokens, longer than {ROWS[longest] - 1}"


def test_pruning_twice_keeps_both_lists(store: Path, tmp_path: Path) -> None:
    prune(store, Wanted(ids_file=write_ids(tmp_path, "sample-0")), tmp_path / "once")
    prune(tmp_path / "once", Wanted(ids_file=write_ids(tmp_path, "sample-6")), tmp_path / "twice")
    assert [record["id"] for record in rejections(tmp_path / "twice")] == ["sample-0", "sample-6", "gone"]
    assert rejections(tmp_path / "twice")[-1]["source"] == "d" * 64
    assert counts(tmp_path / "twice") == (6, 3, 9)


def test_nothing_to_go_by_and_nothing_left_are_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="prune needs to know what goes"):
        prune(store, Wanted(), tmp_path / "out")
    with pytest.raises(NoSamplesError, match="no captured sample is left"):
        prune(store, Wanted(longer_than=0), tmp_path / "out")
    with pytest.raises(InputError, match=r"names 1 samples that .* does not have, such as 'nobody'"):
        prune(store, Wanted(ids_file=write_ids(tmp_path, "sample-1", "nobody")), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(SettingsError, match="is a complete store already"):
        prune(store, Wanted(shorter_than=2), store)


def test_where_no_unit_is_cut_torch_is_not_loaded(store: Path, tmp_path: Path) -> None:
    file = write_ids(tmp_path, "sample-3")
    for arguments in (
        ["prune", str(store), "--ids", str(file), "--output-dir", str(tmp_path / "out")],
        ["split", str(store), "--parts", "2", "--output-dir", str(tmp_path / "parts")],
        ["merge", str(tmp_path / "merged"), str(tmp_path / "parts/part-000"), str(tmp_path / "parts/part-001")],
        ["stats", str(tmp_path / "merged")],
    ):
        subprocess.run([sys.executable, "-c", WITHOUT_TORCH, "store", *arguments], check=True, capture_output=True)
