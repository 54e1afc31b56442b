from __future__ import annotations

import errno
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import AccountError, InputError, NoSamplesError, NoSpaceError, SettingsError, UserError
from pipeline.prepare import command as command_module
from pipeline.prepare import output
from pipeline.prepare.command import main
from pipeline.prepare.header import DATA, HEADER, REJECTED
from pipeline.prepare.reading import Reading
from pipeline.prepare.remembered import NOTE
from pipeline.prepare.summary import Account
from tests.pipeline.conftest import CHECKOUT, run_stage
from tests.pipeline.prepare.conftest import read_lines, talk

ROWS: list[Any] = [
    {"id": "first", "messages": talk("Hi", "Hello!")},
    {"conversations": [{"from": "human", "value": "Hi"}]},
    {"messages": talk("Tell me more", "More and more and more and more and more")},
]
Run = Callable[..., str]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "chats.jsonl", ROWS)


@pytest.fixture
def run(source: Path, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Prepares in this process and returns what was printed."""

    def prepare(*flags: str, sources: list[Path] | None = None) -> str:
        inputs = [argument for path in sources or [source] for argument in ("--input", str(path))]
        places = ["--model-path", str(target), "--output-dir", str(tmp_path / "out")]
        assert main([*inputs, *places, *flags]) == 0
        return capsys.readouterr().out

    return prepare


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8")
    return path


def test_result_is_as_the_contract_says(run: Run, source: Path, target: Path, tmp_path: Path) -> None:
    run()
    out = tmp_path / "out"
    samples, header = read_lines(out / DATA), json.loads((out / HEADER).read_text("utf-8"))
    assert [sample["id"] for sample in samples] == ["first", "chats:3"]
    assert all(set(sample) == {"id", "input_ids", "loss_mask"} for sample in samples)
    assert header["format"] == 1
    assert header["data_sha256"] == hashlib.sha256((out / DATA).read_bytes()).hexdigest()
    assert header["samples"] == 2
    assert header["tokens"] == sum(len(sample["input_ids"]) for sample in samples)
    assert header["trained_tokens"] == sum(sum(sample["loss_mask"]) for sample in samples)
    assert (header["rows_read"], header["rejected"]) == (3, {"no-assistant-turn": 1})
    assert header["sources"] == [{"name": "chats.jsonl", "sha256": hashlib.sha256(source.read_bytes()).hexdigest()}]
    assert header["tokenizer"]["name"] == "target"
    assert header["tokenizer"]["vocab_size"] == 49152
    template = (target / "chat_template.jinja").read_bytes()
    assert header["chat_template_sha256"] == hashlib.sha256(template).hexdigest()
    assert header["settings"] == {
        "max_seq_len": 2048,
        "train_on": "all",
        "min_trained_tokens": 1,
        "truncate": "right",
        "special_tokens": "literal",
        "day": "2026-01-01",
        "trust_remote_code": False,
        "seed": 0,
    }
    assert header["formats"] == {"openai": 2}
    assert header["examples"] == {
        "no-assistant-turn": ["chats.jsonl:2: there is nothing to train on without an assistant message"]
    }
    assert read_lines(out / REJECTED) == [
        {
            "source": "chats.jsonl",
            "line": 2,
            "id": "chats:2",
            "reason": "no-assistant-turn",
            "detail": "there is nothing to train on without an assistant message",
        }
    ]
    assert sorted(path.name for path in out.iterdir()) == sorted([DATA, HEADER, REJECTED, NOTE])


def test_summary_tells_counts_and_the_first_of_each_rejection(run: Run, source: Path) -> None:
    write(source, [*ROWS, "{", "[]", "{"])
    told = run("--max-seq-len", "40")
    assert "2 samples of 6 rows" in told
    assert "1 samples cut to 40 tokens" in told
    assert "2 rejected, not-json; the first: chats.jsonl:4:" in told
    assert "1 rejected, wrong-type; the first: chats.jsonl:5:" in told


def test_rows_of_several_files_come_in_their_order(run: Run, source: Path, tmp_path: Path) -> None:
    more = write(tmp_path / "more.jsonl", [ROWS[2], ROWS[0]])
    write(source, [{"id": "first", "messages": talk("Other", "words")}, *ROWS[1:], {"messages": talk("New", "one")}])
    run(sources=[more, source])
    # The id `first` is taken by the row that comes first, and what was there before is not taken again.
    assert [sample["id"] for sample in read_lines(tmp_path / "out" / DATA)] == ["more:1", "first", "chats:4"]
    reasons = ["duplicate-id", "no-assistant-turn", "duplicate"]
    assert [row["reason"] for row in read_lines(tmp_path / "out" / REJECTED)] == reasons


def test_blank_lines_byte_order_mark_and_line_separators_are_no_trouble(run: Run, source: Path, tmp_path: Path) -> None:
    inside = json.dumps({"messages": talk("a\u2028b", "c\u0085d")}, ensure_ascii=False)
    source.write_bytes(b"\xef\xbb\xbf" + json.dumps(ROWS[0]).encode() + b"\r\n\n  \n" + inside.encode())
    run()
    assert [sample["id"] for sample in read_lines(tmp_path / "out" / DATA)] == ["first", "chats:4"]
    assert json.loads((tmp_path / "out" / HEADER).read_text("utf-8"))["rows_read"] == 2


def test_rerun_does_nothing_and_loads_nothing(run: Run, source: Path, target: Path, tmp_path: Path) -> None:
    run()
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert set(before) == {DATA, HEADER, REJECTED, NOTE}
    flags = ["--input", str(source), "--model-path", str(target), "--output-dir", str(tmp_path / "out")]
    program = (
        "import sys; from pipeline.__main__ import main; code = main(['prepare', *sys.argv[1:]]);"
        "print(code, {'transformers', 'tokenizers', 'torch', 'jinja2', 'vllm'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", program, *flags]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert "up to date: 2 samples" in done.stdout
    assert done.stdout.endswith("0 set()\n")
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


def test_same_run_elsewhere_gives_the_same_bytes(run: Run, tmp_path: Path) -> None:
    run()
    first = {name: (tmp_path / "out" / name).read_bytes() for name in (DATA, HEADER, REJECTED)}
    (tmp_path / "out" / HEADER).unlink()
    run()
    assert {name: (tmp_path / "out" / name).read_bytes() for name in first} == first


def change_template(place: Path) -> None:
    path = place / "target" / "chat_template.jinja"
    path.write_text(path.read_text("utf-8").replace("SmolLM", "Eyas"), "utf-8")


def change_input(place: Path) -> None:
    write(place / "chats.jsonl", ROWS[:1])


def damage_data(place: Path) -> None:
    with (place / "out" / DATA).open("a") as file:
        file.write("{}\n")


def remove_rejected(place: Path) -> None:
    (place / "out" / REJECTED).unlink()


def older_code(place: Path) -> None:
    header = json.loads((place / "out" / HEADER).read_text("utf-8"))
    header["code_version"], header["libraries"]["tokenizers"] = 0, "0.1"
    (place / "out" / HEADER).write_text(json.dumps(header), "utf-8")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (change_template, ["tokenizer files/chat_template.jinja"]),
        (change_input, ["sources chats.jsonl"]),
        (damage_data, ["tokenized.jsonl: missing or not as written"]),
        (remove_rejected, ["rejected.jsonl: missing or not as written"]),
        (older_code, ["code_version: 0 -> 2", "libraries tokenizers: 0.1 -> "]),
    ],
)
def test_what_changed_is_named_and_the_work_done_again(
    change: Callable[[Path], None], named: list[str], run: Run, tmp_path: Path
) -> None:
    run()
    change(tmp_path)
    told = run()
    assert "redone because of" in told
    assert told.splitlines()[0].count(" -> ") + told.splitlines()[0].count("as written") == len(named)
    for name in named:
        assert name in told
    assert "up to date" in run()


def test_changed_setting_is_named_with_both_values(run: Run, tmp_path: Path) -> None:
    run()
    assert run("--max-seq-len", "40").startswith("prepare: redone because of settings max_seq_len: 2048 -> 40\n")
    assert all(len(sample["input_ids"]) <= 40 for sample in read_lines(tmp_path / "out" / DATA))


def test_changed_template_changes_the_samples(run: Run, tmp_path: Path) -> None:
    run()
    before = read_lines(tmp_path / "out" / DATA)
    change_template(tmp_path)
    run()
    assert read_lines(tmp_path / "out" / DATA) != before


def test_run_killed_while_publishing_is_done_again(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    kept = (tmp_path / "out" / DATA).read_bytes()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(output, "make_header", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        run("--max-seq-len", "40")
    assert not (tmp_path / "out" / HEADER).exists(), "a header would vouch for files that it does not know"
    run()
    assert (tmp_path / "out" / DATA).read_bytes() == kept
    assert not list((tmp_path / "out").glob("*.part"))


def test_nothing_usable_ends_with_its_own_code_and_keeps_an_earlier_result(
    run: Run, source: Path, target: Path, tmp_path: Path
) -> None:
    run()
    before = (tmp_path / "out" / DATA).read_bytes()
    write(source, [ROWS[1], "{"])
    with pytest.raises(NoSamplesError, match="1 rejected, no-assistant-turn") as error:
        run()
    assert (tmp_path / "out" / DATA).read_bytes() == before
    assert error.value.exit_code == 42
    assert len(read_lines(tmp_path / "out" / REJECTED)) == 2


def test_empty_input_is_nothing_usable(run: Run, source: Path) -> None:
    source.write_text("\n\n")
    with pytest.raises(NoSamplesError, match="the input is empty"):
        run()


def refusal(run: Run, kind: type[UserError], *flags: str, sources: list[Path] | None = None) -> str:
    with pytest.raises(kind) as error:
        run(*flags, sources=sources)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_missing_input_is_named(run: Run, tmp_path: Path) -> None:
    assert str(tmp_path / "no.jsonl") in refusal(run, InputError, sources=[tmp_path / "no.jsonl"])


def test_folder_without_a_file_of_rows_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no file of rows in" in refusal(run, InputError, sources=[tmp_path / "empty"])


def test_missing_target_is_named(run: Run, tmp_path: Path) -> None:
    assert "no target at" in refusal(run, InputError, "--model-path", str(tmp_path / "gone"))


def test_target_without_a_tokenizer_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no usable tokenizer" in refusal(run, InputError, "--model-path", str(tmp_path / "empty"))


def test_two_inputs_of_the_same_name_are_refused(run: Run, source: Path, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    other = write(tmp_path / "b" / "chats.json", ROWS)
    assert "same ids" in refusal(run, SettingsError, sources=[source, other])


@pytest.mark.parametrize("limit", ["0", "-5"])
def test_impossible_limit_is_refused(run: Run, limit: str) -> None:
    assert "--max-seq-len" in refusal(run, SettingsError, "--max-seq-len", limit)


def test_output_that_cannot_be_written_is_refused(run: Run, source: Path) -> None:
    assert "cannot write" in refusal(run, SettingsError, "--output-dir", str(source / "out"))


def test_full_disk_has_its_own_code(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "tokenized.jsonl.part")

    monkeypatch.setattr(command_module, "write_outcomes", full)
    assert "disk is full at tokenized.jsonl.part" in refusal(run, NoSpaceError)


def test_code_from_the_target_runs_only_when_asked_for(run: Run, target: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (target / "own.py").write_text(
        "from pathlib import Path\nfrom transformers import PreTrainedTokenizerFast\n"
        f"Path({str(ran)!r}).touch()\n\nclass OwnTokenizer(PreTrainedTokenizerFast):\n    pass\n"
    )
    path = target / "tokenizer_config.json"
    config = json.loads(path.read_text("utf-8"))
    config |= {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": [None, "own.OwnTokenizer"]}}
    path.write_text(json.dumps(config), "utf-8")
    (target / "config.json").unlink()
    assert "--trust-remote-code" in refusal(run, SettingsError)
    assert not ran.exists()
    run("--trust-remote-code")
    assert ran.exists()


def test_account_that_does_not_close_stops_the_run() -> None:
    account, reading = Account(rows_used=1, duplicates=2, rejected={"not-json": 1}), Reading([], seed=0)
    reading.rows_read, reading.left_out = 9, {"chats.jsonl": 4}
    with pytest.raises(AccountError, match="9 rows read, but 1 used, 1 rejected, 2 duplicates and 4 left out"):
        account.close(reading)
    reading.rows_read = 8
    assert account.close(reading)["rows_read"] == 8


def test_second_of_two_runs_at_once_finds_the_work_done(source: Path, target: Path, tmp_path: Path) -> None:
    flags = ["--input", str(source), "--model-path", str(target), "--output-dir", str(tmp_path / "out")]
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "pipeline", "prepare", *flags], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    told = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted("up to date" in text for text in told) == [False, True]


def test_error_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    flags = ["--model-path", str(tmp_path), "--output-dir", str(tmp_path / "out")]
    done = run_stage("prepare", "--input", tmp_path / "no.jsonl", *flags)
    assert done.returncode == 41
    assert done.stderr.startswith("eyas: cannot read")
    assert done.stderr.count("\n") == 1
