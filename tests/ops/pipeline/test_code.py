"""Which code a stage is made of: its own folder and what it imports, however that is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.pipeline.code import code_digest, stage_files

FILES = {
    "pipeline/__init__.py": "",
    "pipeline/__main__.py": "",
    "pipeline/errors.py": "",
    "pipeline/files.py": "",
    "pipeline/store/__init__.py": "",
    "pipeline/store/dataset.py": "from pipeline.errors import UserError",
    "pipeline/store/unused.py": "",
    "pipeline/train/__init__.py": "",
    "pipeline/train/command.py": "def main():\n    from pipeline.store import dataset\n    from .loop import step",
    "pipeline/train/loop.py": "import pipeline.files\nWORKER = 'pipeline.extract.worker.Worker'",
    "pipeline/extract/__init__.py": "",
    "pipeline/extract/worker.py": "import torch",
    "pipeline/extract/command.py": "",
}
OF_TRAIN = (
    *("pipeline/__init__.py", "pipeline/errors.py", "pipeline/files.py"),
    *("pipeline/store/__init__.py", "pipeline/store/dataset.py"),
    *("pipeline/train/__init__.py", "pipeline/train/command.py", "pipeline/train/loop.py"),
    *("pipeline/extract/__init__.py", "pipeline/extract/worker.py"),
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_stage_is_its_folder_and_all_it_imports(checkout: Path) -> None:
    found = {path.relative_to(checkout).as_posix() for path in stage_files("train", checkout)}
    assert found == set(OF_TRAIN)


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_digest_changes_with_exactly_these_files(checkout: Path, name: str) -> None:
    before = code_digest("train", checkout)
    (checkout / name).write_text(FILES[name] + "\n# another line")
    assert (code_digest("train", checkout) != before) == (name in OF_TRAIN)


def test_extracting_counts_the_code_that_the_engines_workers_run() -> None:
    names = {path.name for path in stage_files("extract")}
    assert {"worker.py", "writer.py", "durable.py", "errors.py"} <= names


def test_preparing_does_not_depend_on_extracting() -> None:
    folders = {path.parent.name for path in stage_files("prepare")}
    assert "prepare" in folders
    assert "extract" not in folders
