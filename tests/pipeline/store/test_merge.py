"""A merged store is that of one extraction of all the data, and no state is written twice."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.errors import AccountError, InputError, NoSpaceError, SettingsError, StoreDamagedError, StoreMismatchError
from pipeline.store.derive import place
from pipeline.store.derive.merge import merge
from pipeline.store.manifest import is_complete, read_manifest
from pipeline.store.records import Rejection
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
)
from tests.pipeline.store.fake import captured, contents, identity

Parts = list[Path]


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    a = make(tmp_path / "a", [[0, 1], [], [2]], data="a", rejected=[Rejection(None, "broken JSON", 7)])
    return [a, make(tmp_path / "b", [[3], [4, 5, 6]], data="b", rejected=[Rejection("x", "empty: no tokens", 2)])]


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(place.os, "link", refuse)


def test_the_digest_is_that_of_a_store_extracted_in_one_go(parts: Parts, tmp_path: Path) -> None:
    with Store.open_for_run(tmp_path / "whole", identity()) as store:
        store.write_unit(0, [captured(sample) for sample in range(7)])
        store.finalise([], 7)
    for order in (parts, parts[::-1]):
        out = tmp_path / f"merged-{order[0].name}"
        merge(out, order)
        assert digest(out) == digest(tmp_path / "whole")
        assert faults(out) == []


def test_units_keep_the_order_given_and_their_files(parts: Parts, tmp_path: Path) -> None:
    built = merge(tmp_path / "out", parts)
    out = tmp_path / "out"
    assert ids(out) == names(0, 1, 2, 3, 4, 5, 6)
    sources = [shard(parts[0], 0), shard(parts[0], 2), shard(parts[1], 0), shard(parts[1], 1)]
    assert all(same_file(file, shard(out, unit)) for unit, file in enumerate(sources))
    assert (built.linked, built.copied, built.rewritten, built.written) == (4, 0, 0, 0)


def test_the_account_closes_and_a_rejected_samples_line_names_its_data(parts: Parts, tmp_path: Path) -> None:
    merge(tmp_path / "out", parts)
    assert counts(tmp_path / "out") == (7, 3, 10)
    assert rejections(tmp_path / "out") == [
        {"id": None, "line": 7, "reason": "broken JSON", "source": "a" * 64},
        {"id": "bad-a-1", "line": 101, "reason": "non-finite states at layer 1", "source": "a" * 64},
        {"id": "x", "line": 2, "reason": "empty: no tokens", "source": "b" * 64},
    ]
    merge(tmp_path / "more", [tmp_path / "out", make(tmp_path / "c", [[7]], data="c")])
    assert rejections(tmp_path / "more") == rejections(tmp_path / "out")


def test_a_sample_that_was_rejected_beside_captured_ones_is_listed_once(tmp_path: Path) -> None:
    with Store.open_for_run(tmp_path / "a", identity()) as store:
        store.write_unit(0, [captured(0)], [Rejection("nan", "non-finite states at layer 3", 2)])
        store.finalise([], 2)
    merge(tmp_path / "out", [tmp_path / "a"])
    assert counts(tmp_path / "out") == (1, 1, 2)
    assert [record["id"] for record in rejections(tmp_path / "out")] == ["nan"]


def test_the_manifest_says_what_it_was_made_from(parts: Parts, tmp_path: Path) -> None:
    merge(tmp_path / "out", parts)
    manifest = read_manifest(tmp_path / "out")
    line = f'["merge","{"a" * 64}","{"b" * 64}"]\n'
    derived = hashlib.sha256(line.encode()).hexdigest()
    assert manifest["digests"] == {"data": derived, "model": "e" * 64, "stack": "f" * 64, "plan": derived}
    assert manifest["info"] == {
        "model_path": "/target",
        "made_by": "merge",
        "made_from": [{"store": str(part), "store_digest": digest(part)} for part in parts],
    }


def test_without_links_files_are_copied(parts: Parts, tmp_path: Path, no_links: None) -> None:
    built = merge(tmp_path / "out", parts)
    assert faults(tmp_path / "out") == []
    assert not same_file(shard(parts[0], 0), shard(tmp_path / "out", 0))
    assert (built.linked, built.copied) == (0, 4)
    assert built.written == read_manifest(tmp_path / "out")["counts"]["shard_bytes"]


def test_a_file_with_all_the_links_it_can_have_is_copied(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def few(source: str, target: Path) -> None:
        if str(source) == str(shard(parts[1], 1)):
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))
        link(source, target)

    monkeypatch.setattr(place.os, "link", few)
    built = merge(tmp_path / "out", parts)
    assert (built.linked, built.copied, faults(tmp_path / "out")) == (3, 1, [])


def test_shards_that_are_symbolic_links_are_linked_to_what_they_name(parts: Parts, tmp_path: Path) -> None:
    file = shard(parts[0], 0)
    blob = file.rename(tmp_path / "blob")
    file.symlink_to(os.path.relpath(blob, file.parent))
    merge(tmp_path / "deeper" / "out", parts)
    assert faults(tmp_path / "deeper" / "out") == []
    assert same_file(blob, shard(tmp_path / "deeper" / "out", 0))


def test_what_must_be_copied_and_does_not_fit_is_refused_before_anything_is_copied(
    parts: Parts, tmp_path: Path, no_links: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(NoSpaceError, match=r"needs up to .* for what cannot be linked, and its disk has 1.0 kB free"):
        merge(tmp_path / "out", parts)
    assert list((tmp_path / "out" / "shards").iterdir()) == []


def test_stores_of_another_kind_are_refused_with_the_fields_side_by_side(parts: Parts, tmp_path: Path) -> None:
    other = make(tmp_path / "other", [[9]], data="c", settings={"tp_size": 2}, num_layers=7)
    message = rf"num_layers 6 in {parts[0]}, 7 in {other}; settings.tp_size 1 in {parts[0]}, 2 in {other}; merge"
    with pytest.raises(StoreMismatchError, match=message):
        merge(tmp_path / "out", [*parts, other])
    assert not (tmp_path / "out").exists()


def test_a_sample_in_two_stores_is_refused_by_name(parts: Parts, tmp_path: Path) -> None:
    again = make(tmp_path / "again", [[8], [9, 4]], data="c")
    with pytest.raises(AccountError, match=rf"'sample-4' is in {parts[1]} and in {again}"):
        merge(tmp_path / "out", [*parts, again])
    assert not (tmp_path / "out").exists()


def test_an_unfinished_store_is_refused(parts: Parts, tmp_path: Path) -> None:
    with Store.open_for_run(tmp_path / "half", identity()) as store:
        store.write_unit(0, [captured(9)])
    with pytest.raises(StoreDamagedError, match="half is not finished"):
        merge(tmp_path / "out", [*parts, tmp_path / "half"])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("record", "1 of its 2 units are whole"),
        ("cut shard", "1 of its 2 units are whole"),
        ("lost unit", "1 of its 2 units are whole"),
        ("other record", "its records are not those that its manifest names"),
        ("rejected.jsonl", "rejected.jsonl is not the file that was written"),
    ],
)
def test_a_store_that_is_not_what_was_written_is_refused(
    parts: Parts, tmp_path: Path, damage: str, message: str
) -> None:
    record, file = parts[1] / "shards/000001.json", shard(parts[1], 1)
    if damage == "record":
        record.write_bytes(record.read_bytes().replace(b"sample-4", b"sample-9"))
    elif damage == "cut shard":
        os.truncate(file, 100)
    elif damage == "lost unit":
        record.unlink()
    elif damage == "rejected.jsonl":
        (parts[1] / "rejected.jsonl").write_text("")
    else:  # a sound record of the same store, from an earlier extraction
        other = make(tmp_path / "other", [[3], [6, 5, 4]], data="b")
        record.write_bytes((other / "shards/000001.json").read_bytes())
    with pytest.raises(StoreDamagedError, match=f"{parts[1]} is damaged: {message}"):
        merge(tmp_path / "out", parts)
    assert not is_complete(tmp_path / "out")


def test_a_folder_in_use_is_left_alone(parts: Parts, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    with pytest.raises(SettingsError, match="is not empty and is no store"):
        merge(tmp_path / "out", parts)
    before = contents(parts[0])
    with pytest.raises(SettingsError, match=f"{parts[0]} is a complete store already"):
        merge(parts[0], parts)
    assert contents(parts[0]) == before


def test_what_is_no_store_is_an_input_error(parts: Parts, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no store at"):
        merge(tmp_path / "out", [*parts, tmp_path / "nowhere"])


def test_the_folder_of_a_run_stands_for_the_store_in_it(tmp_path: Path) -> None:
    make(tmp_path / "run" / "store", [[0]], data="a")
    merge(tmp_path / "out", [tmp_path / "run", make(tmp_path / "b", [[1]], data="b")])
    assert ids(tmp_path / "out") == names(0, 1)
