"""A run from start to end, ended in between, and started again."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pipeline.__main__ import main
from pipeline.errors import (
    AccountError,
    EngineError,
    NoSamplesError,
    StoreBusyError,
    StoreDamagedError,
    StoreMismatchError,
)
from pipeline.regenerate.folder import ResultFolder
from pipeline.regenerate.job import settle
from pipeline.regenerate.settings import parse
from pipeline.store.lock import StoreLock
from tests.serve.regenerate.conftest import Stage, assistant, user
from tests.serve.regenerate.scripted import Scripted

RESULT = ("conversations.jsonl", "rejected.jsonl", "conversations.header.json")
KILLS = 12
add = ResultFolder.add
LINES = 1500


def result(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in RESULT}


def many_rows(stage: Stage) -> None:
    """30 rows of all kinds: eight units of four with --batch-size 1."""
    rows: list[object] = [{"prompt": f"Question {number}"} for number in range(24)]
    rows += [{"messages": [user("a"), assistant("old"), user("b")]}, "{", {"prompt": "end<|im_end|>"}]
    rows += [{"id": "x", "prompt": "x"}, {"id": "x", "prompt": "y"}, {"prompt": "last"}]
    stage.rows(*rows)


def say(prompt: str, seed: int) -> str:
    """As a target that samples."""
    return f"{seed}" if "Question 7" not in prompt else "on " * 60


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "logs" / "events.jsonl").read_text().splitlines()]


def test_the_header_says_what_the_result_is_and_was_made_from(stage: Stage, stack_json: Path) -> None:
    many_rows(stage)
    stage.run("--batch-size", 2, "--temperature", 0.7, "--top-p", 0.9, "--top-k", 40, "--seed", 3, "--limit", 29)
    header = stage.header()
    for name in ("conversations", "rejected"):
        data = (stage.out / f"{name}.jsonl").read_bytes()
        assert header[f"{name}_sha256"] == hashlib.sha256(data).hexdigest()
    assert header["sources"] == [
        {"name": "chats.jsonl", "sha256": hashlib.sha256(stage.input.read_bytes()).hexdigest()}
    ]
    assert header["stack_sha256"] == json.loads(stack_json.read_text())["digest"]
    template = (stage.target / "chat_template.jinja").read_bytes()
    assert header["chat_template_sha256"] == hashlib.sha256(template).hexdigest()
    assert header["settings"] == {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "seed": 3,
        "max_new_tokens": 1024,
        "unfinished": "reject",
        "max_model_len": 4096,
        "batch_size": 2,
        "unit_rows": 8,
        "tp_size": 1,
        "dtype": "bfloat16",
        "trust_remote_code": False,
        "limit": 29,
    }
    assert (header["rows_read"], header["conversations"], header["answers"]) == (29, 26, 27)
    assert header["rejected"] == {"duplicate-id": 1, "not-json": 1, "special-token-in-text": 1}
    assert sorted(path.name for path in stage.out.iterdir() if path.name != ".lock") == sorted([*RESULT, "logs"])
    assert stage.generator.closed


def test_events_tell_of_every_unit(stage: Stage) -> None:
    many_rows(stage)
    stage.run("--batch-size", 2)
    told = events(stage.out)
    assert [event["event"] for event in told] == ["start", "engine ready", *["unit"] * 4, "end"]
    assert [event["rows"] for event in told if event["event"] == "unit"] == [8, 8, 8, 6]
    assert told[-1]["completed"] is True


def test_killed_at_random_moments_and_run_again_the_result_is_the_same_to_the_byte(
    stage: Stage, tmp_path: Path
) -> None:
    rng = random.Random(2)  # noqa: S311
    many_rows(stage)
    flags = ("--batch-size", 1, "--max-new-tokens", 40)
    whole = tmp_path / "whole"
    stage.run(*flags, say=say, out=whole)
    kills, stages = 0, set()
    while not (stage.out / "conversations.header.json").exists() or (stage.out / "units").exists():
        line = rng.randrange(1, LINES) if kills < KILLS else sys.maxsize
        if killed(stage, flags, line):
            kills += 1
            stages.add(len(list((stage.out / "units").glob("*.jsonl"))) if (stage.out / "units").exists() else -1)
    assert kills == KILLS
    assert len(stages) > 2, f"the kills were not spread over the run: {stages}"
    assert result(stage.out) == result(whole)
    assert json.loads(result(whole)["conversations.header.json"])["rejected"]["unfinished"] == 1


def killed(stage: Stage, flags: tuple[object, ...], line: int) -> bool:
    """Run the stage in a child that is killed at the n-th line of its own code that it executes."""
    child = os.fork()
    if child == 0:
        lines = itertools.count(1)

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            name = frame.f_code.co_filename
            if not name.endswith(
                ("regenerate/folder.py", "regenerate/run.py", "store/durable.py", "regenerate/unit.py")
            ):
                return None
            if event == "line" and next(lines) == line:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        try:
            threading.settrace(trace)
            sys.settrace(trace)
            stage.run(*flags, say=say)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a child must not go on as a second pytest
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "it failed by itself"
    return os.WIFSIGNALED(status)


class Breaks(Scripted):
    """Fails at the n-th moment."""

    def __init__(self, tokenizer: Any, error: BaseException, moments: int) -> None:
        super().__init__(tokenizer)
        self._error, self._moments = error, moments

    def advance(self) -> Any:
        self._moments -= 1
        if self._moments < 0:
            raise self._error
        return super().advance()


def test_an_engine_that_fails_loses_no_finished_unit_and_they_are_not_answered_again(
    stage: Stage, tokenizer: Any, tmp_path: Path
) -> None:
    many_rows(stage)
    stage.run("--batch-size", 2, out=tmp_path / "whole")
    broken = Breaks(tokenizer, EngineError("the engine failed: out of memory"), 18)
    with pytest.raises(EngineError, match=r"out of memory.*its log is .*engine\.log"):
        stage.run_with(broken, "--batch-size", 2)
    assert broken.closed
    assert events(stage.out)[-1]["completed"] is False
    stage.run("--batch-size", 2)
    assert len(stage.generator.units) == 2, "two of four units were finished"
    assert [event["done"] for event in events(stage.out) if event["event"] == "start"] == [0, 16]
    assert result(stage.out) == result(tmp_path / "whole")


def test_after_ctrl_c_the_engine_is_gone_and_the_code_is_130(
    stage: Stage, tokenizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    many_rows(stage)
    stage.generator = Breaks(tokenizer, KeyboardInterrupt(), 18)
    assert main(["regenerate", *stage.flags("--batch-size", 2)]) == 130
    assert stage.generator.closed
    assert "2 of 4 units are in" in capsys.readouterr().err


def test_a_finished_result_is_not_made_again(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    many_rows(stage)
    stage.run()
    before = result(stage.out)
    stage.run()
    assert stage.generator.units == []
    assert "up to date: 27 conversations" in capsys.readouterr().out
    assert result(stage.out) == before


@pytest.mark.parametrize("finished", [True, False])
def test_other_settings_are_refused_with_both_values(stage: Stage, tokenizer: Any, finished: bool) -> None:
    many_rows(stage)
    moments = 1000 if finished else 18
    try:
        stage.run_with(Breaks(tokenizer, EngineError(""), moments), "--batch-size", 2)
    except EngineError:
        assert not finished
    with pytest.raises(StoreMismatchError, match=r"settings\.seed 0 there, 5 now") as caught:
        stage.run("--batch-size", 2, "--seed", 5)
    assert caught.value.exit_code == 44
    assert "batch_size" not in str(caught.value)
    stage.input.write_text(stage.input.read_text() + "\n")
    with pytest.raises(StoreMismatchError, match=r"sources\.1\.sha256 \w{12}… there, \w{12}… now"):
        stage.run("--batch-size", 2)


def test_another_target_is_refused(stage: Stage) -> None:
    stage.rows({"prompt": "a"})
    stage.run()
    other = stage.move_target()
    stage.run()
    assert stage.generator.units == [], "the same target in another place is the same"
    (other / "generation_config.json").write_text("{}")
    with pytest.raises(StoreMismatchError, match="model_sha256"):
        stage.run()


@pytest.mark.parametrize("name", ["conversations.jsonl", "rejected.jsonl"])
def test_a_result_that_was_changed_is_named_and_left_alone(stage: Stage, name: str) -> None:
    many_rows(stage)
    stage.run()
    (stage.out / name).write_text("mine")
    with pytest.raises(StoreDamagedError, match=name):
        stage.run()
    assert (stage.out / name).read_text() == "mine"


@pytest.mark.parametrize("name", ["conversations.header.json", "run.json"])
@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_record_that_cannot_be_read_is_named(stage: Stage, name: str, content: str) -> None:
    stage.rows({"prompt": "a"})
    stage.out.mkdir()
    (stage.out / name).write_text(content)
    with pytest.raises(StoreDamagedError, match=name):
        stage.run()


def test_without_a_single_answer_the_rejections_are_kept_and_other_settings_may_follow(stage: Stage) -> None:
    stage.rows({"prompt": "a"}, "{")
    with pytest.raises(NoSamplesError, match=r"1 rejected, unfinished.*1 rejected, not-json|not-json.*unfinished"):
        stage.run("--max-new-tokens", 1)
    assert len(stage.rejected()) == 2
    assert not (stage.out / "conversations.header.json").exists()
    stage.run()
    assert len(stage.conversations()) == 1


def test_an_empty_input_gives_no_result(stage: Stage) -> None:
    stage.rows()
    with pytest.raises(NoSamplesError, match="the input is empty"):
        stage.run()


def test_a_second_run_is_refused_while_one_is_at_it(stage: Stage) -> None:
    stage.rows({"prompt": "a"})
    stage.out.mkdir()
    lock = StoreLock(stage.out)
    try:
        with pytest.raises(StoreBusyError):
            stage.run()
    finally:
        lock.release()
    stage.run()


def test_more_tokens_than_the_target_has_positions_are_refused(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.rows({"prompt": "a"})
    assert main(["regenerate", *stage.flags("--max-model-len", 8193)]) == 40
    assert "8192 positions" in capsys.readouterr().err
    assert not stage.out.exists()


def test_a_missing_input_is_one_line(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["regenerate", *stage.flags()]) == 41
    assert str(stage.input) in capsys.readouterr().err


def test_an_output_folder_that_cannot_be_made_is_one_line(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.rows({"prompt": "a"})
    stage.out.write_text("a file")
    assert main(["regenerate", *stage.flags()]) == 40
    assert str(stage.out) in capsys.readouterr().err


def test_units_are_four_batches_and_what_is_left(stage: Stage) -> None:
    many_rows(stage)
    units = settle(parse(stage.flags("--batch-size", 2))).units()
    assert list(units) == [(0, 8), (1, 8), (2, 8), (3, 6)]


def test_a_row_that_is_neither_answered_nor_rejected_ends_the_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    many_rows(stage)
    monkeypatch.setattr(ResultFolder, "add", lambda self, unit, outcomes: add(self, unit, outcomes[1:]))
    with pytest.raises(AccountError, match="30 rows read, but 26 answered and 3 rejected"):
        stage.run()
    assert not (stage.out / "conversations.header.json").exists()


def test_what_is_told_at_the_end_adds_up(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    many_rows(stage)
    stage.run("--max-new-tokens", 40, say=say)
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("regenerate: 26 conversations of 30 rows, 27 answers, ")
    assert [line for line in told if "1 rejected, not-json; the first: chats.jsonl:26:" in line]
    assert [line for line in told if "1 rejected, unfinished; the first: chats.jsonl:8: answer 1 does not end" in line]
    assert told[-1] == f"regenerate: written to {stage.out / 'conversations.jsonl'}"
