"""The commands from prompts to a draft: which flags reach a stage, what it is given to read, and the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tasks
from ops import demo, drafts, stages
from ops.paths import CHECKOUT
from ops.program import Program
from tests.ops.recording import Recorder

DEMO = CHECKOUT / "runs" / "demo"
COMMANDS = ("regenerate", "train", "estimate", "evaluate", "export")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    """The runtime of every command, which is not the local one; the stack it was chosen for is in `chosen`."""
    made = Recorder()
    made.chosen = []  # type: ignore[attr-defined]
    monkeypatch.setattr(stages, "choose", lambda stack, *_: made.chosen.append(stack.name) or made)  # type: ignore[attr-defined]
    monkeypatch.setattr(demo, "target_folder", lambda: tmp_path / "target")
    (tmp_path / "target").mkdir()
    monkeypatch.chdir(tmp_path)
    return made


def run(*argv: str) -> None:
    Program(namespace=tasks.commands()).run(["eyas", *argv], exit=False)


def paths_of(recorder: Recorder) -> list[tuple[str, tuple[Path, ...], tuple[Path, ...]]]:
    return [(call.stage, call.reads, call.writes) for call in recorder.calls]


@pytest.mark.parametrize(
    ("argv", "arguments", "reads", "devices"),
    [
        (
            "regenerate --input a.jsonl --input ../b.jsonl --model-path t --output-dir o --temperature 0.7 --tp-size 8",
            "--input={here}/a.jsonl --input={up}/b.jsonl --model-path={here}/t --output-dir={here}/o "
            "--temperature=0.7 --tp-size=8",
            "t a.jsonl ../b.jsonl",
            8,
        ),
        (
            "train --store s --model-path t --output-dir o --init-from d --learning-rate 1 --train-lm-head --nproc 4",
            "--store={here}/s --model-path={here}/t --output-dir={here}/o --init-from={here}/d --train-lm-head "
            "--learning-rate=1 --nproc=4",
            "t s d",
            4,
        ),
        (
            "estimate --store s --model-path t --draft d/best --output-dir o --num-speculative-tokens 5",
            "--store={here}/s --model-path={here}/t --draft={here}/d/best --output-dir={here}/o "
            "--num-speculative-tokens=5",
            "t s d/best",
            1,
        ),
        (
            "evaluate --model-path t --draft one=d --draft two=/e/f=g --input a.jsonl --output-dir o --estimate e.json",
            "--draft=one={here}/d --draft=two=/e/f=g --estimate={here}/e.json --input={here}/a.jsonl "
            "--model-path={here}/t --output-dir={here}/o",
            "t d /e/f=g a.jsonl e.json",
            1,
        ),
        (
            "export --draft d --model-path t --output-dir o --store s --train-report r.json --evaluation v.json",
            "--draft={here}/d --model-path={here}/t --output-dir={here}/o --store={here}/s "
            "--train-report={here}/r.json --evaluation={here}/v.json",
            "t d s r.json v.json",
            1,
        ),
    ],
)
def test_own_data_reaches_the_stage_by_absolute_paths_and_can_be_read_there(
    recorder: Recorder, tmp_path: Path, argv: str, arguments: str, reads: str, devices: int
) -> None:
    run(*argv.split())
    (call,) = recorder.calls
    assert call.arguments == tuple(arguments.format(here=tmp_path, up=tmp_path.parent).split())
    assert call.reads == tuple((tmp_path / name).resolve() for name in reads.split())
    assert (call.writes, call.offline, call.tp_size) == ((tmp_path / "o",), True, devices)


@pytest.mark.parametrize(
    ("command", "stack"),
    [("regenerate", "serve"), ("train", "train"), ("estimate", "train"), ("evaluate", "serve"), ("export", "train")],
)
def test_a_command_runs_in_its_own_stack(recorder: Recorder, command: str, stack: str) -> None:
    run(command)
    assert recorder.chosen == [stack]  # type: ignore[attr-defined]
    assert recorder.calls[-1].stage == command


def test_every_flag_of_a_command_reaches_its_stage(recorder: Recorder) -> None:
    for command in COMMANDS:
        task = tasks.commands()[command]
        own = [arg for arg in task.get_arguments() if arg.name not in {"runtime", "gpus", "dry_run"}]
        recorder.calls.clear()
        flags = [f"--{arg.name.replace('_', '-')}" + ("" if arg.kind is bool else "=1") for arg in own]
        run(command, *flags)
        (call,) = recorder.calls
        assert {flag.split("=")[0] for flag in call.arguments} == {flag.split("=")[0] for flag in flags}


def test_a_target_at_a_hub_may_be_looked_up(recorder: Recorder) -> None:
    run("evaluate", "--model-path", "owner/name", "--draft", "a=d", "--input", "p.jsonl", "--output-dir", "o")
    (call,) = recorder.calls
    assert "--model-path=owner/name" in call.arguments
    assert call.offline is False


@pytest.mark.parametrize("draft", ["", "name=", "=", "folder"])
def test_a_draft_in_another_form_is_the_stages_to_refuse(recorder: Recorder, tmp_path: Path, draft: str) -> None:
    run("evaluate", "--model-path", "t", "--draft", draft, "--output-dir", "o")
    (call,) = recorder.calls
    expected = str(tmp_path / draft) if draft == "folder" else draft
    assert f"--draft={expected}" in call.arguments


ANSWERS, HELD_OUT, TRAIN = DEMO / "regenerated", DEMO / "held-out", DEMO / "train"


def states(prompts: str, folder: Path, target: Path) -> list[tuple[str, tuple[Path, ...], tuple[Path, ...]]]:
    tokenized = folder / "prepared" / "tokenized.jsonl"
    header = tokenized.with_name("tokenized.header.json")
    return [
        ("regenerate", (target, CHECKOUT / "examples" / prompts), (folder,)),
        ("prepare", (target, folder / "conversations.jsonl"), (folder / "prepared",)),
        ("extract", (target, tokenized, *((header,) if header.is_file() else ())), (folder / "store",)),
    ]


def test_the_demo_is_regenerated_from_its_prompts(recorder: Recorder, tmp_path: Path) -> None:
    run("regenerate", "--max-new-tokens", "16")
    assert paths_of(recorder) == states("prompts.jsonl", ANSWERS, tmp_path / "target")[:1]
    assert "--max-new-tokens=16" in recorder.calls[0].arguments


def test_the_demo_is_trained_on_the_states_of_the_targets_own_answers(recorder: Recorder, tmp_path: Path) -> None:
    run("train", "--epochs", "2")
    target, store = tmp_path / "target", ANSWERS / "store"
    assert paths_of(recorder) == [*states("prompts.jsonl", ANSWERS, target), ("train", (target, store), (TRAIN,))]
    wanted = (f"--store={store}", f"--model-path={target}", f"--output-dir={TRAIN}", "--epochs=2")
    assert recorder.calls[-1].arguments == wanted


def test_a_dry_run_of_training_in_containers_runs_nothing(recorder: Recorder) -> None:
    run("train", "--dry-run")
    assert [call.stage for call in recorder.calls] == ["shown"]
    assert "--dry-run" not in recorder.calls[0].arguments


def test_a_dry_run_of_training_in_the_local_runtime_is_the_stages_own(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "LocalRuntime", Recorder)
    run("train", "--store", "s", "--model-path", "t", "--output-dir", "o", "--dry-run")
    assert (recorder.calls[0].stage, recorder.calls[0].arguments[-1]) == ("train", "--dry-run")


def test_the_demos_draft_is_estimated_on_held_out_states(recorder: Recorder, tmp_path: Path) -> None:
    run("estimate")
    target, reads = tmp_path / "target", (HELD_OUT / "store", TRAIN / "best")
    assert paths_of(recorder) == [
        *states("held-out-prompts.jsonl", HELD_OUT, target),
        ("estimate", (target, *reads), (DEMO / "estimate",)),
    ]


@pytest.mark.parametrize("estimated", [True, False])
def test_the_demos_drafts_are_served_trained_and_untrained(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, estimated: bool
) -> None:
    estimate = tmp_path / "estimate.json"
    monkeypatch.setattr(demo, "ESTIMATE", tmp_path)
    if estimated:
        estimate.touch()
    run("evaluate")
    (call,) = recorder.calls
    assert {f"--draft=trained={TRAIN}/best", f"--draft=untrained={TRAIN}/untrained"} <= set(call.arguments)
    prompts = CHECKOUT / "examples" / "held-out-prompts.jsonl"
    told = (estimate,) if estimated else ()
    assert call.reads == (tmp_path / "target", TRAIN / "best", TRAIN / "untrained", prompts, *told)
    assert call.writes == (DEMO / "evaluation",)


def test_the_demos_export_is_told_what_the_commands_before_left(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"TRAIN": "train", "REGENERATED": "regenerated", "EVALUATION": "evaluation"}
    for name, folder in names.items():
        monkeypatch.setattr(demo, name, tmp_path / folder)
    run("export")
    assert recorder.calls[-1].reads == (tmp_path / "target", tmp_path / "train" / "best")
    left = [tmp_path / place for place in ("regenerated/store", "train/report.json", "evaluation/evaluation.json")]
    for path in left:
        path.mkdir(parents=True)
    run("export")
    assert recorder.calls[-1].reads == (tmp_path / "target", tmp_path / "train" / "best", *left)


def test_nothing_given_is_given_on(recorder: Recorder) -> None:
    given: dict[str, Any] = {"num_speculative_tokens": None, "store": "/s", "model_path": None, "draft": None}
    drafts.estimate(given | {"output_dir": None})
    assert recorder.calls[0].arguments == ("--store=/s",)
