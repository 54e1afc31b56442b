"""What a dry run prints, and that it does nothing."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from ops.paths import CHECKOUT
from ops.pipeline import command, recipe
from ops.pipeline.places import Stacks, local_line
from ops.pipeline.selection import select
from ops.stage import StageCall
from tests.ops.pipeline.small_pipeline import STEPS, Bench


def shown(bench: Bench, capsys: pytest.CaptureFixture[str], until: str | None = None) -> list[str]:
    capsys.readouterr()
    steps = bench.steps()
    command.show(select(steps, None, until, ()), len(steps), bench.places, bench.run_folder)
    return capsys.readouterr().out.splitlines()


def test_every_stages_command_is_printed_as_it_would_run(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(bench, capsys)
    calls = [step.call for step in bench.steps()]
    assert lines[1::2] == [" ".join(["line:", call.stage, *call.arguments]) for call in calls]
    assert [line.split()[2] for line in lines[::2]] == [f"{name}:" for name in STEPS]
    train = dict(zip(STEPS, calls, strict=True))["train"].arguments
    steps = bench.steps_folder
    assert train == (
        f"--model-path={bench.folder / 'target'}",
        f"--output-dir={steps / 'train'}",
        f"--store={steps / 'extract'}",
        *("--learning-rate=0.001", "--epochs=2"),
    )


def test_nothing_is_run_or_written(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    shown(bench, capsys)
    assert not bench.run_folder.exists()
    assert not bench.diary.exists()


def test_it_says_what_would_run_and_why(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    first = shown(bench, capsys)
    assert first[0] == "# [1/11] regenerate: would run: new"
    assert first[2] == "# [2/11] prepare: would run: after regenerate"
    bench.run()
    assert all(line.endswith(": unchanged") for line in shown(bench, capsys)[::2])
    bench.edit("learning-rate = 0.001", "learning-rate = 0.0005")
    lines = shown(bench, capsys)[::2]
    assert lines[2] == "# [3/11] extract: unchanged"
    assert lines[3] == "# [4/11] train: would run: learning-rate 0.001 -> 0.0005"
    assert lines[-1] == "# [11/11] evaluate-exports: unchanged, if train gives the same"


def test_a_dry_run_of_a_target_that_is_elsewhere_names_what_is_missing(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    (bench.folder / "target").rename(bench.folder / "gone")
    assert shown(bench, capsys)[0].startswith(
        "# [1/11] regenerate: would run: once it can: regenerate: no model folder"
    )


def test_a_local_line_is_the_command_with_its_variables() -> None:
    words = shlex.split(local_line(StageCall(stage="prepare", arguments=("--input=a b.jsonl",))))
    assert f"PYTHONPATH={CHECKOUT}" in words
    python = next(word for word in words if word.endswith("/bin/python"))
    assert words[words.index(python) + 1 :] == ["-m", "pipeline", "prepare", "--input=a b.jsonl"]
    assert "/envs/extract-cpu-" in python


def test_a_line_for_containers_mounts_what_the_step_reads_and_writes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(bench.folder))
    home = Path("/data/run")
    steps = command.steps_of(recipe.read(bench.file), Path("/models/target"), home)
    words = shlex.split(Stacks("docker", "0,1").line(next(step.call for step in steps if step.name == "extract")))
    mounts = [words[place + 1] for place, word in enumerate(words) if word == "--mount"]
    assert "type=bind,source=/models/target,target=/models/target,readonly" in mounts
    assert f"type=bind,source={home}/steps/prepare,target={home}/steps/prepare,readonly" in mounts
    assert f"type=bind,source={home}/steps/extract,target={home}/steps/extract" in mounts
    assert words[words.index("--gpus") + 1] == '"device=0,1"'


def test_the_commands_flags_reach_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    import tasks
    from ops.program import Program

    received: list[dict[str, object]] = []
    monkeypatch.setattr(command, "pipeline", received.append)
    argv = ["eyas", "pipeline", "--config", "r.toml", "--from", "train", "--until", "export", "--force", "train"]
    Program(namespace=tasks.commands()).run([*argv, "--force", "export", "--dry-run"], exit=False)
    expected = {"config": "r.toml", "start": "train", "until": "export", "force": ["train", "export"], "dry_run": True}
    assert received == [expected | {"run_dir": None, "runtime": None, "gpus": None}]
