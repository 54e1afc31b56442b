"""The seam: which flags and variables reach a stage, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ops import demo, stages
from ops.flags import to_flags
from ops.paths import CHECKOUT
from ops.stage import stage_environment, wait_for
from tests.ops.recording import Recorder

WAIT = """
import os, sys
from ops.stage import wait_for
sys.exit(wait_for([sys.executable, "-c", sys.argv[1]], os.environ))
"""
STAGE = """
import signal, sys, time
def finish(*_):
    time.sleep(0.3)
    print("unit written", flush=True)
    sys.exit({code})
signal.signal(signal.{signal}, finish)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("layers", ["2 30 58 60", "2,30,58,60", " 2, 30 58,60 "])
def test_layers_in_one_value_reach_the_stage_one_by_one(layers: str) -> None:
    assert to_flags({"layer_ids": layers}) == ["--layer-ids", "2", "30", "58", "60"]


def test_only_what_was_given_reaches_the_stage() -> None:
    given = {"tp_size": "8", "dtype": None, "trust_remote_code": True, "dry_run": False, "input": []}
    assert to_flags(given) == ["--tp-size=8", "--trust-remote-code"]


def test_a_repeated_flag_reaches_the_stage_as_often() -> None:
    assert to_flags({"input": ["a.jsonl", "-b.jsonl"]}) == ["--input=a.jsonl", "--input=-b.jsonl"]


def test_a_stage_runs_the_same_way_every_time_and_tells_nobody() -> None:
    environment = stage_environment(offline=True)
    assert environment["PYTHONPATH"] == str(CHECKOUT)
    assert environment["PYTHONHASHSEED"] == "0"
    assert {environment[name] for name in ("VLLM_NO_USAGE_STATS", "DO_NOT_TRACK", "HF_HUB_DISABLE_TELEMETRY")} == {"1"}
    assert environment["HF_HUB_OFFLINE"] == "1"


def test_a_target_on_a_hub_may_be_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert "HF_HUB_OFFLINE" not in stage_environment(offline=False)


def test_a_stages_exit_code_is_passed_on() -> None:
    assert wait_for([sys.executable, "-c", "raise SystemExit(46)"], os.environ) == 46
    assert wait_for([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], os.environ) == 137


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupted_stage_is_given_time_to_finish(name: str) -> None:
    number = signal.Signals[name]
    process = subprocess.Popen(
        [sys.executable, "-c", WAIT, STAGE.format(code=130, signal=name)],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    # A terminal sends Ctrl-C to the whole group, a supervisor SIGTERM to the one process it started.
    (os.killpg if number is signal.SIGINT else os.kill)(process.pid, number)
    assert process.stdout.read() == "unit written\n"
    assert process.wait(timeout=30) == 130


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(stages, "choose", lambda *_: made)
    monkeypatch.setattr(demo, "target_folder", lambda: tmp_path / "target")
    (tmp_path / "target").mkdir()
    return made


NOTHING: dict[str, Any] = dict.fromkeys(["model_path", "prepared_data", "output_dir", "dtype", "tp_size", "input"])
NOTHING |= {"dry_run": False, "runtime": None, "gpus": None}
STORE = CHECKOUT / "runs" / "demo" / "store"


def test_with_no_flags_about_data_the_demo_is_prepared_and_then_extracted(recorder: Recorder, tmp_path: Path) -> None:
    stages.extract(NOTHING | {"dtype": "float32"})
    prepared, extracted = recorder.calls
    data, target = STORE.parent / "tokenized.jsonl", tmp_path / "target"
    assert (prepared.stage, prepared.reads, prepared.writes) == (
        "prepare",
        (target, CHECKOUT / "examples" / "conversations.jsonl"),
        (STORE.parent,),
    )
    assert extracted.arguments == (
        *("--model-path", str(target), "--prepared-data", str(data), "--output-dir", str(STORE), "--dtype=float32"),
    )
    assert (extracted.reads[:2], extracted.writes, extracted.offline) == ((target, data), (STORE,), True)


def test_own_data_reaches_the_stage_by_absolute_paths(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("tokenized.jsonl", "tokenized.header.json"):
        (tmp_path / name).touch()
    own = {"model_path": "target", "prepared_data": "./tokenized.jsonl", "output_dir": "a/../out", "tp_size": "8"}
    stages.extract(NOTHING | own)
    (call,) = recorder.calls
    assert call.arguments == (
        f"--model-path={tmp_path}/target",
        f"--prepared-data={tmp_path}/tokenized.jsonl",
        f"--output-dir={tmp_path}/out",
        "--tp-size=8",
    )
    assert call.reads == tuple(tmp_path / name for name in ("target", "tokenized.jsonl", "tokenized.header.json"))
    assert (call.writes, call.offline, call.tp_size) == ((tmp_path / "out",), True, 8)


def test_inputs_keep_their_options_and_those_of_the_hub_are_looked_up(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inputs = ["a.jsonl", "b,c.parquet,weight=0.5,cap=3", "hf:owner/name:test,format=text"]
    stages.prepare(NOTHING | {"input": inputs, "model_path": "./target", "output_dir": "out"})
    (call,) = recorder.calls
    assert [flag for flag in call.arguments if flag.startswith("--input")] == [
        f"--input={tmp_path}/a.jsonl",
        f"--input={tmp_path}/b,c.parquet,weight=0.5,cap=3",
        "--input=hf:owner/name:test,format=text",
    ]
    assert call.reads == (tmp_path / "a.jsonl", tmp_path / "b,c.parquet", tmp_path / "target")
    assert not call.offline
    stages.prepare(NOTHING | {"input": inputs[:2], "model_path": "./target", "output_dir": "out"})
    assert recorder.calls[1].offline


def test_a_hub_name_stays_one_and_may_be_looked_up(recorder: Recorder, tmp_path: Path) -> None:
    stages.extract(NOTHING | {"model_path": "owner/name", "prepared_data": "/p.jsonl"})
    (call,) = recorder.calls
    assert call.arguments == ("--model-path=owner/name", "--prepared-data=/p.jsonl")
    assert (call.reads, call.offline) == ((Path("/p.jsonl"),), False)


def test_a_dry_run_in_containers_runs_nothing_and_shows_the_real_command(recorder: Recorder) -> None:
    stages.extract(NOTHING | {"dry_run": True})
    assert [call.stage for call in recorder.calls] == ["shown"]
    assert "--dry-run" not in recorder.calls[0].arguments


def test_a_dry_run_in_the_local_runtime_is_the_stages_own(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "LocalRuntime", Recorder)
    stages.extract(NOTHING | {"dry_run": True})
    assert [call.stage for call in recorder.calls] == ["prepare", "extract"]
    assert recorder.calls[1].arguments[-1] == "--dry-run"


def test_recomputing_in_a_container_shows_it_the_target_that_the_store_names(
    recorder: Recorder, tmp_path: Path
) -> None:
    store = tmp_path / "run" / "store"
    store.mkdir(parents=True)
    (store / "manifest.json").write_text('{"info": {"model_path": "/models/kimi"}}', encoding="utf-8")
    asked = NOTHING | {"reference": True, "samples": None}
    for folder in (store, store.parent):
        stages.verify(str(folder), asked)
        assert recorder.calls[-1].reads == (folder, Path("/models/kimi"))
    stages.verify(str(store), asked | {"reference": False})
    assert recorder.calls[-1].reads == (store,)
    assert recorder.calls[-1].writes == ()


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("extract", {"--layer-ids": "2 30", "--tp-size": "8", "--dry-run": None, "--over-long": "cut"}),
        ("prepare", {"--input": "a.jsonl", "--model-path": "folder", "--max-seq-len": "512"}),
        ("verify", {"runs/demo": None, "--samples": "3", "--reference": None}),
    ],
)
def test_a_command_hands_on_exactly_the_flags_it_was_given(
    command: str, flags: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    import tasks
    from ops import stages
    from ops.program import Program

    received: list[dict[str, object]] = []
    monkeypatch.setattr(stages, command, lambda *given: received.append(given[-1]))
    argv = ["eyas", command, *(part for pair in flags.items() for part in pair if part is not None)]
    Program(namespace=tasks.commands()).run(argv, exit=False)
    wanted = {
        name[2:].replace("-", "_"): True if value is None else value
        for name, value in flags.items()
        if name.startswith("--")
    }
    given = {name: value for name, value in received[0].items() if value not in (None, False)}
    assert given == {name: ["a.jsonl"] if name == "input" else value for name, value in wanted.items()}


@pytest.mark.parametrize("argv", [["verify", "runs/demo", "--reference"], ["verify", "--reference", "runs/demo"]])
def test_the_store_to_verify_is_a_plain_argument(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import tasks
    from ops import stages
    from ops.program import Program

    received: list[str] = []
    monkeypatch.setattr(stages, "verify", lambda store, given: received.append(store))
    Program(namespace=tasks.commands()).run(["eyas", *argv], exit=False)
    assert received == ["runs/demo"]


PLACES = ("--model-path", "t", "--output-dir", "d")


@pytest.mark.parametrize(
    ("argv", "stack"),
    [
        (["bench.read", "--store", "runs/demo/store"], "extract"),
        (["bench.train", "--store", "runs/demo/store", "--model-path", "t", "--steps", "9", "--turns", "2"], "train"),
        (["bench.train", "--folder", "runs", "--workers", "0"], "train"),
        (["bench.train-kill", "--kills", "3", "--seed", "4"], "train"),
        (["bench.wrong-drafts", "--store", "s", "--off-store", "o", "--held-out", "h", *PLACES], "train"),
    ],
)
def test_a_benchmark_runs_in_its_stack_with_flags_that_it_knows(
    argv: list[str], stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tasks
    from ops.program import Program

    ran: list[list[str]] = []
    monkeypatch.setattr(stages, "ensure", lambda stack: Path("/environments", stack.name))
    monkeypatch.setattr(stages, "become", lambda command, **_: ran.append(command))
    Program(namespace=tasks.commands()).run(["eyas", *argv], exit=False)
    ((python, _, module, *flags),) = ran
    assert python == f"/environments/{stack}/bin/python"
    assert module == argv[0].replace("-", "_")
    assert flags == [f"{name}={value}" for name, value in zip(argv[1::2], argv[2::2], strict=True)]
    source = (CHECKOUT / "bench" / f"{module.removeprefix('bench.')}.py").read_text(encoding="utf-8")
    assert all(f'add_argument("{name}"' in source.replace("(\n        ", "(") for name in argv[1::2])
