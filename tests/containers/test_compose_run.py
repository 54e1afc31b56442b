"""`docker compose up` on the demo's target, with the real image and engine: the states that the local runtime takes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ops import demo
from ops.stack.model import STACKS, load
from ops.stage import LocalRuntime
from tests.containers.composing import BASE, CPU, Project, project, user
from tests.containers.conftest import run_eyas

SAMPLES = 6
# Layers as words of their own, in another order of flags than ./eyas gives them.
FLAGS = "--batch-size 4 --layer-ids 2 14 29"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders to be mounted, with some of the example conversations and the demo's target."""
    made = tmp_path_factory.mktemp("compose")
    for name in ("data", "models"):
        (made / name).mkdir()
    lines = demo.CONVERSATIONS.read_text(encoding="utf-8").splitlines(keepends=True)
    (made / "data" / "conversations.jsonl").write_text("".join(lines[:SAMPLES]), encoding="utf-8")
    target = made / "models" / "target"
    shutil.copytree(demo.ensure_target(LocalRuntime(load(STACKS / "extract"))), target)
    # Another user reads it.
    target.chmod(0o755)
    for file in target.iterdir():
        file.chmod(0o644)
    return made


@pytest.fixture(scope="module")
def up(cpu_image: str, folder: Path) -> Iterator[tuple[Project, str]]:
    """The project after `up extract`, and what that printed."""
    with project(folder, BASE, CPU, EYAS_IMAGE=cpu_image, EYAS_RUN="demo", EYAS_EXTRACT_FLAGS=FLAGS) as made:
        done = made.run("up", "--exit-code-from", "extract", "extract")
        assert done.returncode == 0, made.logs("prepare") + made.logs("extract") + done.stderr
        yield made, done.stdout


def manifest(store: Path) -> dict[str, Any]:
    return json.loads((store / "manifest.json").read_text(encoding="utf-8"))


def test_the_store_has_the_digest_of_the_local_runtime(up: tuple[Project, str], folder: Path, tmp_path: Path) -> None:
    target, data = str(folder / "models" / "target"), str(folder / "data" / "conversations.jsonl")
    here = ["--model-path", target, "--output-dir"]
    run_eyas("prepare", "--runtime", "local", "--input", data, *here, str(tmp_path))
    prepared = str(tmp_path / "tokenized.jsonl")
    flags = ["--batch-size", "4", "--layer-ids", "2 14 29", "--prepared-data", prepared]
    run_eyas("extract", "--runtime", "local", *flags, *here, str(tmp_path / "store"))
    ours, theirs = manifest(tmp_path / "store"), manifest(folder / "runs" / "demo" / "store")
    assert theirs["status"] == ours["status"] == "complete"
    assert theirs["store_digest"] == ours["store_digest"]
    assert (folder / "runs" / "demo" / "tokenized.jsonl").read_bytes() == Path(prepared).read_bytes()


def test_everything_written_belongs_to_the_user(up: tuple[Project, str], folder: Path) -> None:
    written = list((folder / "runs" / "demo").rglob("*"))
    assert len(written) > 5
    assert {(path.stat().st_uid, path.stat().st_gid) for path in written} == {user()}


def test_up_again_repeats_nothing(up: tuple[Project, str], folder: Path) -> None:
    made, _ = up
    run = folder / "runs" / "demo"
    work = [run / "tokenized.jsonl", *(run / "store" / "shards").iterdir()]
    before = {path: path.stat().st_mtime_ns for path in work}
    assert len(before) > 4
    done = made.run("up", "--exit-code-from", "extract", "extract")
    assert done.returncode == 0
    assert "prepare: up to date" in made.logs("prepare")
    assert "units were done already" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_verify_follows_and_finds_the_store_right(up: tuple[Project, str]) -> None:
    made, _ = up
    done = made.run("up", "--exit-code-from", "verify", "verify")
    assert done.returncode == 0, made.logs("verify")


def test_a_stage_that_fails_says_why_and_its_code_is_had(up: tuple[Project, str], folder: Path) -> None:
    made, _ = up
    done = made.run("up", "--exit-code-from", "extract", "extract", EYAS_EXTRACT_FLAGS="--batch-size 2")
    # The store was made with other settings.
    assert done.returncode == 44
    assert "eyas: " in done.stderr
    assert manifest(folder / "runs" / "demo" / "store")["status"] == "complete"
