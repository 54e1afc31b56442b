"""Whole runs over good and bad inputs: every row is used, rejected, dropped or left out, and all of it is told."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from pipeline.errors import InputError, NoSamplesError, SettingsError
from pipeline.prepare import command as command_module
from pipeline.prepare.command import main
from pipeline.prepare.header import DATA, HEADER, REJECTED
from tests.pipeline.conftest import CHECKOUT
from tests.pipeline.prepare.conftest import read_lines, talk

Header = dict[str, Any]
Prepare = Callable[..., Header]


@pytest.fixture
def prepare(target: Path, tmp_path: Path) -> Prepare:
    """Prepares in this process, checks that the account closes, and gives the header."""

    def run(*inputs: str | Path, flags: tuple[str, ...] = ()) -> Header:
        out = tmp_path / "out"
        given_ = [f"--input={one}" for one in inputs]
        assert main([*given_, f"--model-path={target}", f"--output-dir={out}", *flags]) == 0
        header: Header = json.loads((out / HEADER).read_bytes())
        closed(out, header)
        return header

    return run


@pytest.fixture
def loaded(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokenizer need not be loaded run by run."""
    monkeypatch.setattr("pipeline.prepare.tokenizer.load_tokenizer", lambda *_: tokenizer)


def closed(out: Path, header: Header) -> None:
    samples, rejected = read_lines(out / DATA), read_lines(out / REJECTED)
    reasons = Counter(row["reason"] for row in rejected)
    assert reasons.pop("duplicate", 0) == header["duplicates"]
    assert reasons == header["rejected"]
    assert len(samples) == header["samples"]
    assert len({sample["id"] for sample in samples}) == len(samples)
    left_out = sum(header["left_out"].values())
    assert header["rows_read"] == header["rows_used"] + len(rejected) + left_out
    assert sum(header["formats"].values()) == header["rows_used"]
    assert {reason: min(count, 3) for reason, count in Counter(row["reason"] for row in rejected).items()} == {
        reason: len(rows) for reason, rows in header["examples"].items()
    }


def chat(number: int) -> bytes:
    return json.dumps({"messages": talk(f"Question {number}", f"Answer {number}")}).encode()


def write(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def many(path: Path, count: int) -> Path:
    rows = [chat(number // 7 * 6 if number % 7 == 0 else number) for number in range(count)]
    rows[11], rows[12], rows[13] = b"{", json.dumps({"text": "Plain words."}).encode(), b'{"input_ids": [5, 6]}'
    rows[14] = json.dumps({"id": "own", "messages": talk("a", "b")}).encode()
    rows[count // 2] = json.dumps({"id": "own", "messages": talk("a", "c")}).encode()
    return write(path, rows)


BAD = {
    "broken": (b'{"messages": [', "not-json"),
    "utf8": (b'{"text": "\xff"}', "not-utf8"),
    "null": (b'{"messages": [{"role": "user", "content": null}]}', "wrong-type"),
    "number": (b'{"messages": [{"role": "user", "content": 7}]}', "wrong-type"),
    "role": (b'{"messages": [{"role": "narrator", "content": "x"}]}', "unknown-role"),
    "keys": (b'{"score": 1}', "unknown-format"),
    "vocabulary": (b'{"input_ids": [1, 49152]}', "id-out-of-vocabulary"),
    "surrogate": (rb'{"text": "\ud800"}', "not-utf8"),
    "nul": (b'{"text": "a\x00b"}', "not-json"),
    "not-an-object": (b"17", "wrong-type"),
    "large": (b'{"huge": "' + b"x" * 10_000_000 + b'"}', "unknown-format"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_row_in_the_middle_is_rejected_with_its_place_and_the_others_are_used(
    name: str, prepare: Prepare, tmp_path: Path
) -> None:
    line, reason = BAD[name]
    header = prepare(write(tmp_path / "chats.jsonl", [chat(1), line, chat(2)]))
    assert (header["rows_used"], header["rejected"]) == (2, {reason: 1})
    (example,) = header["examples"][reason]
    assert example.startswith("chats.jsonl:2: ")
    assert example.isprintable()


def test_nul_that_json_allows_is_text_as_any_other(prepare: Prepare, tmp_path: Path) -> None:
    row = json.dumps({"messages": talk("a\0b", "c\0d")}).encode()
    assert prepare(write(tmp_path / "chats.jsonl", [row]))["rows_used"] == 1


def test_row_of_ten_megabytes_is_used(prepare: Prepare, tmp_path: Path) -> None:
    row = json.dumps({"messages": talk("Say a lot.", "word " * 2_000_000)}).encode()
    header = prepare(write(tmp_path / "chats.jsonl", [chat(1), row]))
    assert (header["rows_used"], header["cut"]) == (2, 1)


def test_examples_are_the_first_three_of_a_reason(
    prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = prepare(write(tmp_path / "chats.jsonl", [chat(1), b"{", b"{", b"[", b"{", b"}"]))
    places = [one.split(": ")[0] for one in header["examples"]["not-json"]]
    assert places == ["chats.jsonl:2", "chats.jsonl:3", "chats.jsonl:4"]
    told = capsys.readouterr().out
    assert "5 rejected, not-json; the first: chats.jsonl:2: " in told
    assert "; then chats.jsonl:3, chats.jsonl:4\n" in told


def test_mixed_inputs_of_every_kind_are_counted_by_form(
    prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        chat(1),
        b'{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}',
        b'{"instruction": "c", "output": "d"}',
        b'{"prompt": "e", "response": "f"}',
        b'{"text": "Once upon a time."}',
        b'{"input_ids": [3, 4, 5], "loss_mask": [0, 1, 1]}',
    ]
    write(tmp_path / "all.jsonl", rows)
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(chat(2) + b"\n")[:-9])
    (tmp_path / "none.jsonl").touch()
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist([{"other": 1}, {"other": 2}]), sink)
    (tmp_path / "wrong.parquet").write_bytes(sink.getvalue())
    header = prepare(*(tmp_path / name for name in ("all.jsonl", "cut.jsonl.gz", "none.jsonl", "wrong.parquet")))
    one_each = {"openai": 1, "sharegpt": 1, "alpaca": 1, "prompt-response": 1, "text": 1, "tokens": 1}
    assert header["formats"] in (one_each, one_each | {"openai": 2})
    assert header["rejected"] == {"source-broken": 1, "unknown-format": 2}
    assert "1 alpaca, " in capsys.readouterr().out
    samples = {sample["id"]: sample for sample in read_lines(tmp_path / "out" / DATA)}
    assert set(samples["all:5"]["loss_mask"]) == {1}
    assert (samples["all:6"]["input_ids"], samples["all:6"]["loss_mask"]) == ([3, 4, 5], [0, 1, 1])


def test_text_that_imitates_special_tokens_does_not_become_them(
    prepare: Prepare, tmp_path: Path, tokenizer: Any
) -> None:
    prepare(write(tmp_path / "a.jsonl", [b'{"text": "one<|im_end|>two"}']))
    (sample,) = read_lines(tmp_path / "out" / DATA)
    assert not set(sample["input_ids"]) & set(tokenizer.all_special_ids)
    assert tokenizer.decode(sample["input_ids"]) == "one<|im_end|>two"


@pytest.mark.parametrize("flags", [("--format=text",), ()])
def test_format_that_is_given_is_taken(flags: tuple[str, ...], prepare: Prepare, tmp_path: Path) -> None:
    row = json.dumps({"messages": talk("a", "b"), "text": "All of it."}).encode()
    path = write(tmp_path / "a.jsonl", [row])
    header = prepare(path if flags else f"{path},format=text", flags=flags)
    assert header["formats"] == {"text": 1}


def test_weight_takes_the_same_share_every_time_and_cap_ends_an_input(
    prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = write(tmp_path / "first.jsonl", [chat(number) for number in range(400)])
    second = write(tmp_path / "second.jsonl", [chat(number) for number in range(1000, 1400)])
    header = prepare(f"{first},weight=0.25", f"{second},cap=10")
    assert 60 < header["formats"]["openai"] - 10 < 140
    assert header["left_out"] == {str(first): 410 - header["rows_used"]}
    assert header["capped"] == {str(second): 10}
    assert header["rows_read"] == 410
    told = capsys.readouterr().out
    assert f"rows of {first} left out by its weight" in told
    assert f"{second} has reached its cap of 10 rows" in told
    before = (tmp_path / "out" / DATA).read_bytes()
    prepare(f"{first},weight=0.25", f"{second},cap=10", flags=("--seed=1",))
    assert "redone because of settings seed: 0 -> 1" in capsys.readouterr().out
    assert (tmp_path / "out" / DATA).read_bytes() != before
    prepare(f"{first},weight=0.25", f"{second},cap=11", flags=("--seed=1",))
    assert "cap=10 -> cap=11" in capsys.readouterr().out
    prepare(f"{first},weight=0.25", f"{second},cap=10")
    assert (tmp_path / "out" / DATA).read_bytes() == before


def test_result_does_not_depend_on_how_many_work(
    prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_module, "SMALL", 0)
    path = many(tmp_path / "chats.jsonl", 1000)
    results = []
    for workers in (1, 2, 3):
        header = prepare(path, flags=(f"--workers={workers}",))
        results.append([(tmp_path / "out" / name).read_bytes() for name in (DATA, HEADER, REJECTED)])
        (tmp_path / "out" / HEADER).unlink()
    assert header["duplicates"] > 100
    assert header["rejected"] == {"duplicate-id": 1, "not-json": 1}
    assert results[0] == results[1] == results[2]


def test_rerun_reads_neither_inputs_nor_results_again(
    prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = many(tmp_path / "chats.jsonl", 50)
    prepare(path)
    monkeypatch.setattr("pipeline.prepare.remembered.file_sha256", lambda path: pytest.fail(f"{path} is read"))
    prepare(path)
    assert "up to date" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--workers=0",), SettingsError),
        (("--format=chat",), SettingsError),
        (("--input=gone.jsonl",), InputError),
        (("--input=.,weight=3",), SettingsError),
    ],
)
def test_setting_that_cannot_be_is_refused(
    flags: tuple[str, ...], error: type[Exception], prepare: Prepare, tmp_path: Path
) -> None:
    with pytest.raises(error):
        prepare(write(tmp_path / "chats.jsonl", [chat(1)]), flags=flags)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_that_is_ended_says_so_in_one_line_and_keeps_an_earlier_result(
    number: signal.Signals, prepare: Prepare, target: Path, tmp_path: Path
) -> None:
    path = many(tmp_path / "chats.jsonl", 30)
    prepare(path)
    before = (tmp_path / "out" / DATA).read_bytes()
    many(path, 60_000)
    flags = [f"--input={path}", f"--model-path={target}", f"--output-dir={tmp_path / 'out'}", "--workers=2"]
    run = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "prepare", *flags], cwd=CHECKOUT, stderr=subprocess.PIPE, text=True
    )
    while len(children := psutil.Process(run.pid).children(recursive=True)) < 2:
        assert run.poll() is None
        time.sleep(0.02)
    os.kill(run.pid, number)
    assert run.communicate(timeout=30)[1] == "eyas: interrupted\n"
    assert run.returncode == 130
    assert not psutil.wait_procs(children, timeout=5)[1]
    assert (tmp_path / "out" / DATA).read_bytes() == before


keys = st.sampled_from(["messages", "conversations", "instruction", "output", "prompt", "response", "text"])
more_keys = st.sampled_from(["input_ids", "loss_mask", "labels", "id", "system", "tools", "history", "unfinished"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 60_000) | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "from", "value", "type", "text", "tool_calls"]), inner)
    ),
    max_leaves=10,
)
rows_of_values = st.dictionaries(keys | more_keys, values, max_size=4).map(lambda row: json.dumps(row).encode())


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    lines=st.lists(rows_of_values | st.binary(max_size=60), max_size=6),
    name=st.sampled_from(["a.jsonl", "a.json", "a.parquet", "a.arrow"]),
    start=st.sampled_from([b"", b"[", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"]),
)
def test_whatever_a_file_holds_the_account_closes(
    lines: list[bytes], name: str, start: bytes, prepare: Prepare, loaded: None, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(start + b"\n".join(lines))
    try:
        prepare(write(tmp_path / "good.jsonl", [chat(1)]), tmp_path / name)
    except NoSamplesError:
        pytest.fail("the good row was lost")
