"""The store commands reach the stage with absolute paths, and a container is given what they read and write."""

from __future__ import annotations

from pathlib import Path

import pytest

import tasks
from ops import stages
from ops.program import Program
from ops.stage import StageCall


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[StageCall]:
    """What the runtime was asked for."""
    asked: list[StageCall] = []
    runtime = type("Recorder", (), {"finish": lambda _, call: asked.append(call)})()
    monkeypatch.setattr(stages, "choose", lambda *_: runtime)
    monkeypatch.chdir(tmp_path)
    return asked


def run(*argv: str) -> None:
    Program(namespace=tasks.commands()).run(["eyas", *argv], exit=False)


def test_merge_reads_its_parts_and_writes_its_folder(calls: list[StageCall], tmp_path: Path) -> None:
    run("store.merge", "out", "--part", "a", "--part", "/stores/b")
    parts = (tmp_path / "a", Path("/stores/b"))
    arguments = ("merge", f"{tmp_path}/out", f"{tmp_path}/a", "/stores/b")
    assert calls == [StageCall(stage="store", arguments=arguments, reads=parts, writes=(tmp_path / "out",))]


def test_split_and_prune_read_the_store_and_the_list_and_write_their_folder(
    calls: list[StageCall], tmp_path: Path
) -> None:
    run("store.split", "runs/demo", "--parts", "3", "--output-dir", "x/../out")
    run("store.prune", "runs/demo", "--untrained", "--shorter-than", "9", "--ids", "i.txt", "--output-dir", "out")
    split, prune = calls
    store, out = tmp_path / "runs/demo", tmp_path / "out"
    assert split.arguments == ("split", str(store), "--parts=3", f"--output-dir={out}")
    assert (split.stage, split.reads, split.writes) == ("store", (store,), (out,))
    assert prune.arguments == (
        *("prune", str(store), f"--ids={tmp_path}/i.txt", "--shorter-than=9", "--untrained", f"--output-dir={out}"),
    )
    assert (prune.reads, prune.writes) == ((store, tmp_path / "i.txt"), (out,))


def test_stats_writes_nothing_but_the_file_that_was_asked_for(calls: list[StageCall], tmp_path: Path) -> None:
    run("store.stats", "runs/demo")
    run("store.stats", "runs/demo", "--json", "figures/stats.json")
    assert [call.writes for call in calls] == [(), (tmp_path / "figures",)]
    assert calls[1].arguments == ("stats", f"{tmp_path}/runs/demo", f"--json={tmp_path}/figures/stats.json")


def test_export_writes_beside_its_folder_which_appears_when_it_is_whole(calls: list[StageCall], tmp_path: Path) -> None:
    run("store.export", "runs/demo", "--to", "speculators-0.9.0", "--output-dir", "out/files")
    (call,) = calls
    assert call.arguments == (
        "export",
        f"{tmp_path}/runs/demo",
        "--to=speculators-0.9.0",
        f"--output-dir={tmp_path}/out/files",
    )
    assert (call.reads, call.writes) == ((tmp_path / "runs/demo",), (tmp_path / "out",))
