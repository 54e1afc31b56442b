"""Which stack a stage runs in is one table, and both runtimes go by it."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ops import local, stage
from ops.container import runtime as module
from ops.container.gpus import Gpus
from ops.container.runtime import DockerRuntime
from ops.paths import CHECKOUT
from ops.stack.model import STACKS, load
from ops.stack.stages import STACK_NAMES, STACK_OF, stack_of, stages_of
from ops.stage import LocalRuntime, StageCall


def test_every_stack_that_is_named_is_there_and_every_one_there_has_stages() -> None:
    assert {path.parent.name for path in STACKS.glob("*/stack.toml")} == set(STACK_NAMES)
    assert all(stages_of(name) for name in STACK_NAMES)


def test_every_stage_of_the_pipeline_is_in_the_table() -> None:
    # Read and not imported: the two halves know nothing of each other.
    tree = ast.parse((CHECKOUT / "pipeline" / "__main__.py").read_text(encoding="utf-8"))
    tables = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and "STAGES" in ast.unparse(node).split("=")[0]
    ]
    (table,) = tables
    assert isinstance(table, ast.Dict)
    assert {ast.literal_eval(key) for key in table.keys if key} <= STACK_OF.keys()


@pytest.mark.parametrize(("name", "stack"), [("extract", "extract"), ("train", "train"), ("evaluate", "serve")])
def test_the_local_runtime_runs_a_stage_in_its_stacks_environment(
    name: str, stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[str, Path]] = []
    monkeypatch.setattr(local, "ensure", lambda found: Path("/envs") / found.name)
    monkeypatch.setattr(stage, "run_stage", lambda environment, called, *_, **__: used.append((called, environment)))
    monkeypatch.setattr(stage, "become_stage", lambda environment, called, *_, **__: used.append((called, environment)))
    runtime = LocalRuntime(load(STACKS / "extract"))
    for start in (runtime.run, runtime.finish):
        start(StageCall(stage=name, arguments=()))
    assert used == [(name, Path("/envs") / stack)] * 2


@pytest.mark.parametrize(("name", "stack"), [("extract", "extract"), ("train", "train"), ("evaluate", "serve")])
def test_the_docker_runtime_runs_a_stage_in_its_stacks_image(
    name: str, stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used: list[Any] = []
    monkeypatch.setattr(module, "find_image", lambda _, found, accelerator: f"{found.name}:{accelerator}")
    monkeypatch.setattr(module, "connect", SimpleNamespace)
    monkeypatch.setattr(module, "sweep", lambda _: None)
    monkeypatch.setattr(module, "run_container", lambda _, spec, *__: used.append(spec.image) or 0)
    monkeypatch.setenv("HOME", str(tmp_path))
    runtime = DockerRuntime(load(STACKS / "extract"), Gpus())
    call = StageCall(stage=name, arguments=(), writes=(tmp_path / "out",))
    assert runtime.run(call) == 0
    assert used == [f"{stack}:cpu"]
    runtime.show(call)
    assert f"eyas-{stack}:cpu {name}" in capsys.readouterr().out


def test_a_stage_of_one_stack_is_not_of_another() -> None:
    assert [stack_of(name).name for name in ("target", "store", "estimate", "export", "evaluate")] == [
        *("extract", "extract", "train", "train", "serve")
    ]
