"""Plans: every line is in a unit or rejected with its reason, and units keep their limits."""

from __future__ import annotations

import hashlib
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import InputError
from pipeline.extract.plan import Plan, build_plan, read_unit
from pipeline.store.records import Rejection

VOCAB = 100


def sample(name: str, length: int, **changes: Any) -> dict[str, Any]:
    row = {
        "id": name,
        "input_ids": [i % VOCAB for i in range(length)],
        "loss_mask": [i % 2 for i in range(length)],
    }
    return {**row, **changes}


def write(folder: Path, *rows: dict[str, Any] | str | bytes) -> Path:
    file = folder / "tokenized.jsonl"
    lines = [
        row if isinstance(row, bytes) else (row if isinstance(row, str) else json.dumps(row)).encode() for row in rows
    ]
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    return file


def plan_of(file: Path, **changes: Any) -> Plan:
    settings = {"batch_size": 3, "token_budget": 10, "max_seq_len": 20, "over_long": "reject", "vocab_size": VOCAB}
    return build_plan(file, **{**settings, **changes})


def shape(plan: Plan) -> list[list[str]]:
    return [[ref.id for ref in unit.samples] for unit in plan.units]


def test_samples_are_packed_in_data_order_by_both_limits(tmp_path: Path) -> None:
    lengths = {"a": 4, "b": 6, "c": 1, "d": 1, "e": 1, "f": 1, "g": 15, "h": 2, "i": 9}
    file = write(tmp_path, *(sample(name, length) for name, length in lengths.items()))
    plan = plan_of(file)
    assert shape(plan) == [["a", "b"], ["c", "d", "e"], ["f"], ["g"], ["h"], ["i"]]
    assert [unit.index for unit in plan.units] == [0, 1, 2, 3, 4, 5]
    assert [unit.tokens for unit in plan.units] == [10, 3, 1, 15, 2, 9]
    assert plan.input_samples == 9
    assert plan.rejected == ()


@pytest.mark.parametrize(
    ("row", "reason", "name"),
    [
        ("{not json", "broken JSON", None),
        (b'{"id": "\xff"}', "broken JSON", None),
        ("[" * 100_000, "wrong keys or types", None),
        ('{"x": ' + "[" * 100_000, "broken JSON", None),
        ("[1, 2]", "wrong keys or types: Expected `object`", None),
        ({"id": "x"}, "missing required field `input_ids`", "x"),
        (sample("x", 3, id=7), "Expected `str`, got `int`", None),
        (sample("x", 3, id=""), "empty id", ""),
        (sample("x", 3, input_ids=[1, "2", 3]), r"Expected `int`, got `str` - at `\$.input_ids\[1\]`", "x"),
        (sample("x", 3, input_ids=[1, 2.5, 3]), "Expected `int`, got `float`", "x"),
        (sample("x", 3, loss_mask=[True, False, True]), "Expected `int`, got `bool`", "x"),
        (sample("x", 3, loss_mask=[0, 1]), "loss_mask has 2 entries for 3 tokens", "x"),
        (sample("x", 3, loss_mask=[0, 2, 1]), "loss_mask holds 2", "x"),
        (sample("x", 0), "empty: no tokens", "x"),
        (sample("x", 21), "over long: 21 tokens, at most 20", "x"),
        (sample("x", 2, input_ids=[0, 100]), "token id 100 is out of the vocabulary of 100", "x"),
        (sample("x", 2, input_ids=[0, 10**30]), "out of the vocabulary", "x"),
        (sample("x", 2, input_ids=[-1, 5]), "token id -1 is negative", "x"),
        (sample("good", 5), "duplicate id, first on line 1", "good"),
    ],
)
def test_a_bad_line_is_rejected_with_its_reason_and_costs_no_other(
    tmp_path: Path, row: Any, reason: str, name: str | None
) -> None:
    file = write(tmp_path, sample("good", 4), "", row, "  ", sample("after", 4))
    plan = plan_of(file)
    assert shape(plan) == [["good", "after"]]
    (rejection,) = plan.rejected
    assert re.search(reason, rejection.reason)
    assert (rejection.id, rejection.line) == (name, 3)
    assert plan.input_samples == 3


def test_exactly_max_seq_len_fits_and_one_more_is_cut_when_asked(tmp_path: Path) -> None:
    file = write(tmp_path, sample("fits", 20), sample("long", 21))
    assert [r.id for r in plan_of(file).rejected] == ["long"]
    plan = plan_of(file, over_long="cut")
    assert plan.rejected == ()
    assert [unit.tokens for unit in plan.units] == [20, 20]
    (cut,) = read_unit(file, plan.units[1])
    assert cut.input_ids == list(range(20))
    assert cut.loss_mask == [0, 1] * 10


def test_the_last_line_needs_no_newline_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    file = tmp_path / "tokenized.jsonl"
    file.write_bytes(json.dumps(sample("a", 2)).encode() + b"\r\n" + json.dumps(sample("b", 2)).encode())
    plan = plan_of(file)
    assert shape(plan) == [["a", "b"]]
    assert [s.id for s in read_unit(file, plan.units[0])] == ["a", "b"]


def test_units_read_back_are_the_samples_of_the_file(tmp_path: Path) -> None:
    rng = random.Random(0)  # noqa: S311
    rows = [sample(f"ü{i}", rng.randrange(1, 30)) for i in range(200)]
    file = write(tmp_path, *rows)
    plan = plan_of(file)
    assert plan.input_samples == len(plan.rejected) + sum(len(unit.samples) for unit in plan.units)
    read = {s.id: (s.input_ids, s.loss_mask) for unit in plan.units for s in read_unit(file, unit)}
    assert read == {r["id"]: (r["input_ids"], r["loss_mask"]) for r in rows if len(r["input_ids"]) <= 20}
    for unit in plan.units:
        assert len(unit.samples) <= 3
        assert unit.tokens <= 10 or len(unit.samples) == 1


def test_the_same_data_and_settings_give_the_same_plan(tmp_path: Path) -> None:
    file = write(tmp_path, *(sample(str(i), i % 7 + 1) for i in range(50)), "broken")
    assert plan_of(file) == plan_of(file)


def test_a_plan_keeps_its_digest_so_that_stores_of_earlier_versions_go_on(tmp_path: Path) -> None:
    rows = [sample(f'ü{i}\n"', 3 * i + 1) for i in range(9)]
    # rejected in this project's own words: a library's may change with its version
    bad = [sample("", 1), sample("x", 2, input_ids=[0, 100]), sample("x", 2, loss_mask=[0, 3])]
    file = write(tmp_path, *rows[:4], "", *bad, *rows[3:])
    assert plan_of(file).digest == "699730d46b28c91d494d3660d7bb6d1fc605131b1fd384b55155c74d9d24df3c"
    assert plan_of(file, over_long="cut").digest == "862547b325c782a5e3b09fe111e678ff8b25ec3a5329706726802e79a02bca02"


@pytest.mark.parametrize(
    "change", [{"batch_size": 2}, {"token_budget": 5}, {"max_seq_len": 6}, {"max_seq_len": 6, "over_long": "cut"}]
)
def test_settings_that_change_the_units_change_the_digest(tmp_path: Path, change: dict[str, Any]) -> None:
    file = write(tmp_path, *(sample(str(i), i % 7 + 1) for i in range(50)))
    assert plan_of(file, **change).digest != plan_of(file).digest


def test_a_file_that_is_not_what_its_header_says_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, sample("a", 2), sample("b", 2))
    header = tmp_path / "tokenized.header.json"
    header.write_text(json.dumps({"data_sha256": hashlib.sha256(file.read_bytes()).hexdigest()}))
    plan = plan_of(file)
    assert plan.data_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(InputError, match=r"not the file that tokenized.header.json describes.*prepare again"):
        plan_of(file)
    header.write_text("{")
    with pytest.raises(InputError, match="not a header that prepare wrote"):
        plan_of(file)


def test_a_missing_file_and_a_folder_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"No such file.*prepare writes it"):
        plan_of(tmp_path / "nothing.jsonl")
    with pytest.raises(InputError, match=r"Is a directory; give the tokenized.jsonl"):
        plan_of(tmp_path)


@pytest.mark.parametrize("now", [sample("other", 4), sample("a", 3), "gone"])
def test_data_changed_after_planning_is_noticed(tmp_path: Path, now: Any) -> None:
    file = write(tmp_path, sample("a", 4))
    plan = plan_of(file)
    write(tmp_path, now)
    with pytest.raises(InputError, match="line 1 is no longer sample 'a'"):
        read_unit(file, plan.units[0])


def test_rejections_keep_the_lines_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "", "x", sample("a", 1), sample("a", 1))
    assert plan_of(file).rejected[1] == Rejection("a", "duplicate id, first on line 3", 4)
    assert [r.line for r in plan_of(file).rejected] == [2, 4]
