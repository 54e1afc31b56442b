"""What is read out of files of every kind, whole and broken."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc, parquet

from pipeline.errors import InputError, SettingsError
from pipeline.prepare.source import Row, stem
from pipeline.prepare.sources import lines as lines_module
from pipeline.prepare.sources import rows_of
from pipeline.prepare.sources.array import BLOCK, document_rows
from pipeline.prepare.sources.files import Part, inputs_of

ROWS = [{"id": str(number), "messages": [{"role": "user", "content": f'"[{{,\\ {number}'}]} for number in range(5)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def read(path: Path) -> list[Row]:
    return list(rows_of(Part(path, path.name)))


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue())


def as_parquet(rows: list[Any]) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


def as_arrow(opener: Callable[..., Any]) -> Callable[[list[Any]], bytes]:
    def write(rows: list[Any]) -> bytes:
        sink, table = io.BytesIO(), pa.Table.from_pylist(rows)
        with opener(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue()

    return write


KINDS: dict[str, Callable[[list[Any]], bytes]] = {
    "a.jsonl": lambda _: LINES,
    "a.jsonl.gz": lambda _: gzip.compress(LINES),
    "members.jsonl.gz": lambda _: gzip.compress(LINES[:300]) + gzip.compress(LINES[300:]),
    "a.jsonl.zst": lambda _: zstd(LINES),
    "named-otherwise.jsonl": lambda _: zstd(LINES),
    "lines.json": lambda _: LINES,
    "a.json": lambda rows: json.dumps(rows).encode(),
    "indented.json": lambda rows: json.dumps(rows, indent=2).encode(),
    "a.json.gz": lambda rows: gzip.compress(json.dumps(rows).encode()),
    "a.json.zst": lambda rows: zstd(json.dumps(rows).encode()),
    "list.json": lambda rows: json.dumps({"version": [1][0], "about": {"n": 5}, "data": rows, "end": 1}).encode(),
    "list-indented.json": lambda rows: json.dumps({"data": rows}, indent=1).encode(),
    "follow.json": lambda rows: "\n".join(json.dumps(row, indent=2) for row in rows).encode(),
    "mark.json": lambda rows: b"\xef\xbb\xbf" + json.dumps(rows).encode(),
    "a.parquet": as_parquet,
    "file.arrow": as_arrow(ipc.new_file),
    "stream.arrow": as_arrow(ipc.new_stream),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(KINDS[name](ROWS))
    rows = read(tmp_path / name)
    assert [json.loads(row.content) for row in rows] == ROWS
    assert [(row.source, row.line, row.fault) for row in rows] == [(name, number, None) for number in range(1, 6)]


def test_one_row_over_several_lines_is_one_row(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(ROWS[0], indent=2))
    assert [json.loads(row.content) for row in read(tmp_path / "a.json")] == ROWS[:1]
    (tmp_path / "a.json").write_text(json.dumps(ROWS[0]))
    assert [json.loads(row.content) for row in read(tmp_path / "a.json")] == ROWS[:1]


def broken(path: Path) -> tuple[list[Any], str]:
    """The rows that are left, and what is said of the rest."""
    *rows, last = read(path)
    assert last.fault
    assert last.fault[0] == "source-broken"
    assert last.line == len(rows) + 1
    assert f"{path.name} cannot be read behind row {len(rows)}" in last.fault[1]
    return [json.loads(row.content) for row in rows], last.fault[1]


@pytest.mark.parametrize(
    ("name", "squeeze"), [("a.jsonl.gz", gzip.compress), ("a.jsonl.zst", zstd)], ids=["gzip", "zstd"]
)
def test_rows_before_a_cut_are_kept_and_the_cut_is_one_row(
    name: str, squeeze: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    many = b"".join(json.dumps({"text": f"{number * 7919**5} {number}"}).encode() + b"\n" for number in range(90_000))
    whole = squeeze(many)
    (tmp_path / name).write_bytes(whole[: len(whole) * 2 // 3])
    rows, _ = broken(tmp_path / name)
    assert 10_000 < len(rows) < 90_000
    assert many.startswith(b"".join(json.dumps(row).encode() + b"\n" for row in rows))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_all_whole_lines_before_a_cut_in_gzip_are_rows(share: float, tmp_path: Path) -> None:
    few = b"".join(json.dumps({"text": f"{number * 7919**5} {number}"}).encode() + b"\n" for number in range(3_000))
    whole = gzip.compress(few)
    cut = whole[: int(len(whole) * share)]
    (tmp_path / "a.jsonl.gz").write_bytes(cut)
    rows, _ = broken(tmp_path / "a.jsonl.gz")
    assert rows
    assert len(rows) == zlib.decompressobj(31).decompress(cut).count(b"\n")


@pytest.mark.parametrize(
    ("name", "content", "left"),
    [
        ("a.jsonl.gz", b"\x1f\x8bnot gzip at all", 0),
        ("a.parquet", b"PAR1 and nothing of a table", 0),
        ("cut.parquet", as_parquet(ROWS)[:-20], 0),
        ("a.arrow", b"ARROW1\0\0no table", 0),
        ("cut.arrow", as_arrow(ipc.new_stream)(ROWS)[:-200], 0),
        ("cut.json", json.dumps(ROWS).encode()[:-10], 4),
        ("in-text.json", json.dumps(ROWS).encode()[:-20], 4),
        ("many-closed.json", json.dumps(ROWS).encode() + b"]", 5),
        ("two.json", json.dumps(ROWS).encode() * 2, 5),
        ("behind.json", json.dumps(ROWS).encode() + b" x", 5),
        ("two-lists.json", json.dumps({"data": ROWS, "more": ROWS}).encode(), 5),
    ],
)
def test_what_is_wrong_with_a_file_is_one_row(name: str, content: bytes, left: int, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    rows, told = broken(tmp_path / name)
    assert rows == ROWS[:left]
    assert "\n" not in told


def test_a_bad_row_of_an_array_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'[{"a": 1}, {"b": nonsense}, , "\xff", [1, 2], {"c": "]"}]')
    contents = [b'{"a": 1}', b'{"b": nonsense}', b"", b'"\xff"', b"[1, 2]", b'{"c": "]"}']
    assert [row.content for row in read(tmp_path / "a.json")] == contents


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.parquet.jsonl"])
def test_empty_file_has_no_rows(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    assert read(tmp_path / name) == []


def test_empty_array_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(" [ ] \n")
    assert read(tmp_path / "a.json") == []


def test_a_line_without_end_is_not_held_and_the_next_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "LONGEST", 100)
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n' + b"x" * 1000 + b'\n{"b": 2}\n' + b"y" * 101)
    rows = read(tmp_path / "a.jsonl")
    assert [(row.line, row.fault and row.fault[0]) for row in rows] == [
        (1, None),
        (2, "row-too-long"),
        (3, None),
        (4, "row-too-long"),
    ]


def test_keys_that_a_column_of_objects_could_not_leave_out_are_not_there(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": "a", "name": None}]}, {"messages": [{"role": "u", "name": "n"}]}]
    (tmp_path / "a.parquet").write_bytes(as_parquet(rows))
    first, second = (json.loads(row.content) for row in read(tmp_path / "a.parquet"))
    assert first == {"messages": [{"role": "user", "content": "a"}]}
    assert second == {"messages": [{"role": "u", "name": "n"}]}


def test_table_of_other_columns_gives_rows_that_say_which(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(as_parquet([{"score": 1.5, "raw": b"\xff"}]))
    assert json.loads(read(tmp_path / "a.parquet")[0].content)["score"] == 1.5


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(json_values, max_size=8), indent=st.sampled_from([None, 1]), block=st.integers(1, 40))
def test_rows_of_an_array_are_found_whatever_they_hold_and_wherever_blocks_end(
    rows: list[Any], indent: int | None, block: int
) -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(block if size == BLOCK else size)

    text = json.dumps(rows, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
    found = [row.content for row in document_rows(Slow(text), "a")]
    assert [json.loads(content.decode("utf-8", "surrogatepass")) for content in found] == rows


def test_folder_gives_its_files_in_order_of_their_names_and_no_others(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    for name in ("data/b.jsonl", "data/a.jsonl.gz", "state.json", "README.md", ".cache/x.jsonl", "z.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (one,) = inputs_of([str(folder)], None)
    assert [part.name for part in one.parts] == ["set/data/a.jsonl.gz", "set/data/b.jsonl", "set/z.parquet"]


def test_data_set_saved_by_datasets_is_read_from_its_folder(tmp_path: Path) -> None:
    from datasets import Dataset

    Dataset.from_list(ROWS).save_to_disk(str(tmp_path / "saved"))
    (one,) = inputs_of([str(tmp_path / "saved")], None)
    assert [json.loads(row.content) for part in one.parts for row in rows_of(part)] == ROWS


def test_data_set_of_the_hub_is_read_as_datasets_streams_it(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "set" / "train.parquet")
    hub = Part(Path("hf:o/n"), "o/n:train", form="openai", hub=f"{tmp_path}/set:train")
    rows = list(rows_of(hub))
    assert [json.loads(row.content) for row in rows] == ROWS
    assert [(row.source, row.form) for row in rows] == [("o/n:train", "openai")] * 5


def test_hub_that_cannot_be_reached_is_one_line() -> None:
    with pytest.raises(InputError, match="cannot read the data set owner/name of the hub") as error:
        inputs_of(["hf:owner/name"], None)
    assert "\n" not in str(error.value)


def test_options_stand_behind_a_place_that_may_have_commas(tmp_path: Path) -> None:
    (tmp_path / "a,b.jsonl").touch()
    (one,) = inputs_of([f"{tmp_path}/a,b.jsonl,weight=0.25,cap=7,format=text"], "tokens")
    assert (one.weight, one.cap, one.parts[0].form, one.given) == (0.25, 7, "text", f"{tmp_path}/a,b.jsonl")
    assert one.choices == "weight=0.25,cap=7,format=text"
    (plain,) = inputs_of([f"{tmp_path}/a,b.jsonl"], None)
    assert plain.choices == ""


@pytest.mark.parametrize(
    "given_",
    [
        *("a.jsonl,weight=0", "a.jsonl,weight=2", "a.jsonl,weight=x", "a.jsonl,weight=nan", "a.jsonl,cap=0"),
        *("a.jsonl,cap=-1", "a.jsonl,format=chat", "hf:", "hf:a/b/c", "hf:a/b:x y"),
    ],
)
def test_option_that_cannot_be_is_refused(given_: str) -> None:
    with pytest.raises(SettingsError) as error:
        inputs_of([given_], None)
    assert given_ in str(error.value)


@pytest.mark.parametrize(
    ("name", "found"),
    [("chats.jsonl", "chats"), ("chats.jsonl.gz", "chats"), ("d/chats.json.zst", "d/chats"), ("a.b.jsonl", "a.b")],
)
def test_ids_do_not_depend_on_how_a_file_is_written(name: str, found: str) -> None:
    assert Row(name, 3, b"").default_id == f"{found}:3"
    assert stem(name) == found
