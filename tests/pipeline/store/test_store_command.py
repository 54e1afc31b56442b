"""The store commands as a user runs them: what is shown, and one line and an exit code for what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from pipeline.__main__ import main
from pipeline.store.command import FORMS
from pipeline.store.export import Form
from tests.pipeline.store.derived import digest, ids, make, names, write_ids

Said = Callable[[], str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """What was printed since the last call, its lines joined."""
    return lambda: " ".join("".join(capsys.readouterr()).split())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make(tmp_path / "run[0]" / "store", [[0, 1], [2, 3], [4, 5]])


def run(*arguments: object) -> int:
    return main(["store", *map(str, arguments)])


def test_split_says_what_each_part_holds_and_merge_gives_the_store_back(
    store: Path, tmp_path: Path, said: Said
) -> None:
    assert run("split", store.parent, "--parts", 3, "--output-dir", tmp_path / "out") == 0
    shown = said()
    assert f"{tmp_path}/out/part-001: 2 captured + 0 rejected = 2 samples" in shown
    assert "shard files: 3 linked, 0 copied, 0 cut and written anew; 0 bytes written" in shown
    parts = sorted((tmp_path / "out").iterdir())
    assert run("merge", tmp_path / "merged", *parts) == 0
    assert f"in 3 units; digest {digest(store)}" in said()


def test_split_by_ids_and_prune_reach_their_samples(store: Path, tmp_path: Path, said: Said) -> None:
    file = write_ids(tmp_path, *names(1, 4, 5))
    assert run("split", store, "--ids", file, "--output-dir", tmp_path / "out") == 0
    assert "shard files: 2 linked, 0 copied, 2 cut and written anew" in said()
    assert run("prune", store, "--ids", file, "--output-dir", tmp_path / "pruned") == 0
    assert ids(tmp_path / "pruned") == ids(tmp_path / "out" / "without") == names(0, 2, 3)


def test_prune_takes_all_of_its_conditions(store: Path, tmp_path: Path) -> None:
    flags = ["--shorter-than", 1, "--longer-than", 1000, "--untrained", "--output-dir", tmp_path / "pruned"]
    assert run("prune", store, *flags) == 0
    # Every second token is trained on, so that only a sample of one token is untrained.
    assert ids(tmp_path / "pruned") == names(*range(6))


def test_stats_shows_and_writes_the_figures(store: Path, tmp_path: Path, said: Said) -> None:
    assert run("stats", store.parent, "--json", tmp_path / "stats.json") == 0
    shown = said()
    assert "6 captured + 0 rejected = 6" in shown
    assert "tokens a sample" in shown
    figures = json.loads((tmp_path / "stats.json").read_text())
    assert figures["store_digest"] == digest(store)
    assert figures["counts"]["captured"] == 6
    assert run("stats", store, "--json", tmp_path) == 40
    assert "cannot write --json" in said()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["merge", "{out}", "{store}", "{store}"], 48, "sample 'sample-0' is in {store} and in {store}: a store holds"),
        (["merge", "{store}", "{store}"], 40, "{store} is a complete store already"),
        (["split", "{store}", "--output-dir", "{out}"], 40, "split needs --parts or --ids, one of them"),
        (["split", "{store}", "--parts", "2", "--ids", "x", "--output-dir", "{out}"], 40, "split needs --parts or"),
        (["split", "{store}", "--ids", "{out}", "--output-dir", "{out}"], 41, "cannot read {out}"),
        (["prune", "{store}", "--output-dir", "{out}"], 40, "prune needs to know what goes"),
        (["prune", "{store}", "--longer-than", "0", "--output-dir", "{out}"], 42, "no captured sample is left"),
        (["stats", "{out}"], 41, "no store at {out}"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_its_exit_code(
    arguments: list[str], code: int, message: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"store": store, "out": tmp_path / "out"}
    assert run(*(argument.format(**places) for argument in arguments)) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"eyas: {message.format(**places)}")


@pytest.mark.parametrize("arguments", [[], ["unite"], ["merge", "out"], ["split", "store", "--parts", "two"]])
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize(("form", "file"), [(FORMS[0], "data_5.pt"), (FORMS[1], "hidden_states/hs_5.safetensors")])
def test_export_writes_every_sample_and_refuses_a_folder_that_is_there(
    store: Path, tmp_path: Path, said: Said, form: str, file: str
) -> None:
    assert get_args(Form) == FORMS
    assert run("export", store.parent, "--to", form, "--output-dir", tmp_path / "out") == 0
    assert f"6 samples for {form} in {tmp_path}/out" in said()
    assert (tmp_path / "out" / file).exists()
    assert run("export", store, "--to", form, "--output-dir", tmp_path / "out") == 40
