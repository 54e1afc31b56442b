"""Order, skipping and what makes a step run again, with stages that are real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import invoke
import pytest

from ops.paths import CHECKOUT
from ops.pipeline.errors import ExportsDifferError, HeldError, MissingInputError, RecipeError
from ops.pipeline.provenance import held
from tests.ops.pipeline.small_pipeline import STEPS, Bench, without_code

CALLS = [f"{'evaluate' if name == 'evaluate-exports' else name.removeprefix('held-out-')} {name}" for name in STEPS]
AFTER_TRAIN = [CALLS[3], *CALLS[7:]]


def test_all_stages_run_in_order_and_then_none(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run() == CALLS
    capsys.readouterr()
    assert bench.run() == []
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[-1] for line in said[:-1]] == ["unchanged"] * len(STEPS)


def test_a_changed_setting_is_named_and_what_depends_on_it_runs(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.run()
    bench.edit("learning-rate = 0.001", "learning-rate = 0.0005")
    capsys.readouterr()
    assert bench.run() == AFTER_TRAIN
    said = capsys.readouterr().err
    assert "train                runs: learning-rate 0.001 -> 0.0005\n" in said
    assert "estimate             runs: draft changed\n" in said


def test_a_setting_that_is_gone_is_named_too(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.run()
    bench.edit("epochs = 2\n", "")
    bench.run(until="train")
    assert "runs: epochs 2 -> not set\n" in capsys.readouterr().err


def test_a_changed_prompt_file_is_named_and_leads_to_new_exports(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.run()
    (bench.folder / "prompts.jsonl").write_text("b prompt\n")
    assert bench.run() == [*CALLS[:4], *CALLS[7:]]
    assert "runs: prompts prompts.jsonl changed\n" in capsys.readouterr().err


def test_another_target_makes_every_step_run(bench: Bench) -> None:
    bench.run()
    (bench.folder / "target" / "tokenizer.json").write_text("{}")
    assert bench.run() == CALLS


def test_another_stack_makes_its_stages_run(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.run()
    bench.places.stacks = {"evaluate": "another"}
    # What was evaluated anew came out the same, so that the export stands.
    assert bench.run() == ["evaluate evaluate", "evaluate evaluate-exports"]
    assert "runs: the stack changed\n" in capsys.readouterr().err


def test_other_code_of_a_stage_makes_it_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.run()
    monkeypatch.setattr(
        "ops.pipeline.state.code_digest", lambda stage: without_code(f"a new {stage}" if stage == "extract" else stage)
    )
    assert bench.run() == ["extract extract", "extract held-out-extract"]
    assert "runs: the stage's code changed\n" in capsys.readouterr().err
    # That stage knows what of its own store is still right: nothing is moved out of its way.
    assert not (bench.steps_folder / "superseded").exists()


def test_what_was_made_otherwise_is_kept_aside(bench: Bench) -> None:
    bench.run()
    before = (bench.steps_folder / "train" / "report.json").read_text()
    for lr in ("0.0005", "0.0001"):
        bench.edit(bench.file.read_text().split("learning-rate = ")[1].split()[0], lr)
        bench.run(until="train")
    kept = bench.steps_folder / "superseded"
    assert (kept / "train-1" / "report.json").read_text() == before
    assert (kept / "train-2" / "best" / "model.safetensors").is_file()


def test_an_output_that_was_removed_is_made_again_in_place(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.run()
    (bench.steps_folder / "prepare" / "tokenized.jsonl").unlink()
    assert bench.run() == ["prepare prepare"]
    assert "prepare              runs: tokenized.jsonl missing or incomplete\n" in capsys.readouterr().err


def test_an_output_that_was_altered_is_made_again(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.run()
    weights = bench.steps_folder / "train" / "best" / "model.safetensors"
    right = weights.read_bytes()
    # Of the same size, in the same moment as far as the clock can tell.
    times = weights.stat()
    weights.write_bytes(right[:-1] + b"?")
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert bench.run() == ["train train"]
    assert "train                runs: best altered since\n" in capsys.readouterr().err
    assert weights.read_bytes() == right
    assert (bench.steps_folder / "superseded" / "train-1").is_dir()


@pytest.mark.parametrize("harm", ["shards/000000.safetensors", "manifest.json"])
def test_a_store_that_lost_bytes_goes_back_to_its_stage(bench: Bench, harm: str) -> None:
    bench.run()
    (bench.steps_folder / "extract" / harm).write_text("")
    assert bench.run() == ["extract extract"]
    assert not (bench.steps_folder / "superseded").exists()


def test_a_failing_stage_stops_the_pipeline_with_its_code_and_says_where_to_look(bench: Bench) -> None:
    bench.with_variables(FAIL="train")
    with pytest.raises(
        invoke.Exit, match=r"train failed with exit code 47 after .*log is in .*/train.*goes on"
    ) as failure:
        bench.run()
    assert failure.value.code == 47
    assert bench.written() == CALLS[:4]
    bench.with_variables()
    assert bench.run() == ["train train went on", *CALLS[4:]]


def test_an_interrupted_stage_that_is_then_wanted_otherwise_starts_from_nothing(bench: Bench) -> None:
    bench.with_variables(FAIL="train")
    with pytest.raises(invoke.Exit):
        bench.run()
    bench.with_variables()
    bench.edit("learning-rate = 0.001", "learning-rate = 0.0005")
    assert bench.run(until="train") == ["train train"]


@pytest.mark.parametrize("step", ["extract", "train", "evaluate"])
def test_after_a_kill_in_the_middle_the_same_command_goes_on_there(bench: Bench, step: str) -> None:
    command = [sys.executable, "-m", "tests.ops.pipeline.small_pipeline", str(bench.folder), step]
    process = subprocess.Popen(command, cwd=CHECKOUT, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (bench.steps_folder / step / "half").exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    place = STEPS.index(step)
    assert bench.run() == [f"{CALLS[place]} went on", *CALLS[place + 1 :]]
    record = provenance(bench)["steps"][place]
    assert (record["step"], record["status"], record["resumed"]) == (step, "done", True)


def test_exports_that_are_served_differently_fail_the_run_and_do_so_again(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    counts: dict[str, Any] = {"speculators": [4, 2, 1], "eagle3": [4, 1, 1]}
    drafts = {name: {"drafts": 9, "accepted_per_position": count} for name, count in counts.items()}
    bench.with_variables(DRAFTS=json.dumps(drafts))
    for _ in range(2):
        with pytest.raises(
            ExportsDifferError, match=r"accepted_per_position: speculators \[4, 2, 1\], eagle3 \[4, 1, 1\]"
        ):
            bench.run()
        assert bench.written()[-1] == "evaluate evaluate-exports"
    assert provenance(bench)["steps"][-1]["status"] == "started"
    assert "evaluate-exports     runs: was not finished\n" in capsys.readouterr().err


def test_until_from_and_force_choose_the_steps(bench: Bench) -> None:
    assert bench.run(until="prepare") == CALLS[:2]
    assert bench.run(start="extract", until="train") == CALLS[2:4]
    assert bench.run(until="train", force=("prepare",)) == ["prepare prepare"]
    bench.edit("temperature = 0.7", "temperature = 0.8")
    # What is before the first step is taken as it is.
    assert bench.run(start="train", until="train") == []


def test_a_first_step_without_the_ones_before_it_is_refused(bench: Bench) -> None:
    bench.run(until="prepare")
    with pytest.raises(MissingInputError, match=r"--from train: extract has not made \."):
        bench.run(start="train")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"until": "taste"}, "--until taste: no such step; there are regenerate, prepare"),
        ({"start": "train", "until": "prepare"}, "--until prepare comes before --from train"),
        ({"until": "prepare", "force": ("train",)}, "--force train: it is not among the steps"),
    ],
)
def test_steps_that_there_are_not_are_refused(bench: Bench, flags: dict[str, Any], told: str) -> None:
    with pytest.raises(RecipeError, match=told):
        bench.run(**flags)


def test_a_missing_input_is_named_before_anything_runs(bench: Bench) -> None:
    (bench.folder / "prompts.jsonl").unlink()
    with pytest.raises(MissingInputError, match=r"regenerate: nothing to read at .*prompts\.jsonl"):
        bench.run()
    assert bench.written() == []


def test_two_pipelines_in_one_folder_are_refused(bench: Bench) -> None:
    with held(bench.run_folder), pytest.raises(HeldError, match="another pipeline works in"):
        bench.run()


def test_the_stacks_of_all_that_will_run_are_there_before_the_first_step(bench: Bench) -> None:
    bench.run(until="train")
    assert bench.places.made_ready == [["regenerate", "prepare", "extract", "train"]]
    bench.run(until="train")
    assert len(bench.places.made_ready) == 1


def test_a_moved_run_folder_is_still_unchanged(bench: Bench) -> None:
    bench.run()
    bench.run_folder.rename(bench.folder / "elsewhere")
    bench.run_folder = bench.folder / "elsewhere"
    assert bench.run() == []


def test_provenance_leads_from_the_prompts_to_the_exports(bench: Bench) -> None:
    bench.run()
    found = provenance(bench)
    assert [step["step"] for step in found["steps"]] == list(STEPS)
    steps = {step["step"]: step for step in found["steps"]}
    made = {(name, output): digest for name, step in steps.items() for output, digest in step["outputs"].items()}
    chain = [
        ("prepare", "conversations", "regenerate", "conversations.jsonl"),
        ("extract", "tokenized data", "prepare", "tokenized.jsonl"),
        ("train", "store", "extract", "."),
        ("export", "draft", "train", "best"),
        ("evaluate-exports", "draft eagle3", "export", "eagle3"),
    ]
    for name, read, maker, output in chain:
        assert steps[name]["made_from"]["inputs"][read] == made[maker, output]
    text = (bench.run_folder / "provenance.json").read_text()
    assert str(bench.folder) not in text
    told = {"system", "python", "cores", "memory_bytes", "gpus", "gpu_driver"}
    for step in found["steps"]:
        assert step["host"].keys() == told
        assert (step["stack"]["patches"], step["status"]) == (["0001-a.patch"], "done")
        assert step["seconds"] >= 0


def test_a_provenance_file_that_cannot_be_read_is_one_line(bench: Bench) -> None:
    bench.run(until="prepare")
    (bench.run_folder / "provenance.json").write_text("{")
    with pytest.raises(MissingInputError, match=r"provenance\.json cannot be read"):
        bench.run()


def provenance(bench: Bench) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(bench.run_folder) / "provenance.json").read_bytes())
    return found
