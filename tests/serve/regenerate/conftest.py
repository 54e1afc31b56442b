"""The demo target's tokenizer, the stage with a scripted target in place of the engine, and its files."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from pipeline.prepare.tokenizer import load_tokenizer
from pipeline.regenerate import command
from tests.serve.regenerate.scripted import Say, Scripted, echo


@pytest.fixture(scope="session")
def demo_target() -> Path:
    """The materialised demo target, which the suite has the extract stack make."""
    return Path(os.environ["EYAS_DEMO_TARGET"])


@pytest.fixture(scope="session")
def tokenizer(demo_target: Path) -> Any:
    return AutoTokenizer.from_pretrained(demo_target)


class Stage:
    """Runs of the stage in this process."""

    def __init__(self, target: Path, folder: Path, tokenizer: Any) -> None:
        self.target, self.out = target, folder / "out"
        self.input = folder / "chats.jsonl"
        self._tokenizer = tokenizer
        self.generator = Scripted(tokenizer)

    def rows(self, *rows: object) -> None:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        self.input.write_text("".join(f"{line}\n" for line in lines), "utf-8")

    def flags(self, *flags: object, out: Path | None = None) -> list[str]:
        where = ["--input", self.input, "--model-path", self.target, "--output-dir", out or self.out]
        return [str(flag) for flag in (*where, *flags)]

    def run(self, *flags: object, say: Say = echo, out: Path | None = None) -> None:
        self.run_with(Scripted(self._tokenizer, say), *flags, out=out)

    def run_with(self, generator: Scripted, *flags: object, out: Path | None = None) -> None:
        self.generator = generator
        command.main(self.flags(*flags, out=out))

    def conversations(self) -> list[dict[str, Any]]:
        return self._lines("conversations.jsonl")

    def rejected(self) -> list[dict[str, Any]]:
        return self._lines("rejected.jsonl")

    def header(self) -> dict[str, Any]:
        return json.loads((self.out / "conversations.header.json").read_text("utf-8"))

    def move_target(self) -> Path:
        """Let the target be in another folder, in which a test may change all but the weights."""
        folder = self.input.parent / "moved"
        folder.mkdir()
        for file in self.target.iterdir():
            if file.suffix == ".safetensors":
                (folder / file.name).symlink_to(file)
            else:  # a copy: what a test writes must not reach the target that all tests share
                shutil.copy(file, folder)
        self.target = folder
        return folder

    def _lines(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / name).read_text("utf-8").splitlines()]


@pytest.fixture
def stage(
    demo_target: Path, tmp_path: Path, tokenizer: Any, stack_json: Path, monkeypatch: pytest.MonkeyPatch
) -> Stage:
    made = Stage(demo_target, tmp_path, tokenizer)
    monkeypatch.setenv("EYAS_STACK_JSON", str(stack_json))
    monkeypatch.setattr(command, "_start", lambda job, prompts: made.generator)
    monkeypatch.setattr(command, "load_tokenizer", load_once)
    return made


@functools.cache
def load_once(model: Path, trust_remote_code: bool) -> Any:
    """Most of a run's time would go into its tokenizer."""
    return load_tokenizer(model, trust_remote_code)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def says(text: str) -> Callable[[str, int], str]:
    return lambda prompt, seed: text
