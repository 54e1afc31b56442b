"""A stack may patch nothing: it is installed, checked and shown as any other, and the patch commands say so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.markers import default_environment

from ops import patching
from ops.errors import StackError
from ops.image.build import Request, arguments
from ops.image.smoke import check_bytecode, check_patches
from ops.local import ensure
from ops.paths import CHECKOUT
from ops.stack import commands
from ops.stack.check import check_environment
from ops.stack.digest import patch_list, stack_digest
from ops.stack.model import STACKS, Stack, load
from tests.ops import small_stack

MARKERS = {key: str(value) for key, value in default_environment().items()}


@pytest.fixture
def unpatched(tmp_path: Path) -> Stack:
    """The small stack, its stack.toml naming no series."""
    stack = small_stack.write(tmp_path / "checkout")
    toml = stack.folder / "stack.toml"
    text = toml.read_text(encoding="utf-8")
    assert 'patches = "mdurl-0.1.2"\n' in text
    toml.write_text(text.replace('patches = "mdurl-0.1.2"\n', ""), encoding="utf-8")
    return load(stack.folder)


def test_it_is_installed_as_its_packages_come(unpatched: Stack) -> None:
    environment = ensure(unpatched)
    assert not list(environment.rglob("_patched.py"))
    assert json.loads((environment / "stack.json").read_text(encoding="utf-8"))["patches"] == []
    assert check_environment(unpatched, "cpu", environment, MARKERS) == 1


def test_its_digest_is_of_its_own_pins_and_not_that_of_the_patched_one(unpatched: Stack, tmp_path: Path) -> None:
    patched = small_stack.write(tmp_path / "another")
    digest = stack_digest(unpatched, "cpu")
    assert (len(digest), digest != stack_digest(patched, "cpu")) == (64, True)
    assert patch_list(unpatched) == []
    lock = unpatched.lock("cpu")
    lock.write_text(lock.read_text(encoding="utf-8") + "# Another word.\n", encoding="utf-8")
    assert stack_digest(unpatched, "cpu") != digest


def test_the_patch_commands_say_that_there_are_none(unpatched: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patching, "STACKS", unpatched.folder.parent)
    header = {"name": "a", "description": "b", "test": "c", "author": "d"}
    for command in (
        lambda: patching.status("small"),
        lambda: patching.verify("small"),
        lambda: patching.refresh("small"),
        lambda: patching.rebase("small", "2.0"),
        lambda: patching.new("small", "edited", **header),
    ):
        with pytest.raises(StackError, match=r"stack small has no patches: .*stack\.toml") as caught:
            command()
        assert "\n" not in str(caught.value)


def test_show_and_verify_say_that_there_are_none(
    unpatched: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "STACKS", unpatched.folder.parent)
    monkeypatch.setattr(commands, "check_lock", lambda part, lock: commands.read_lock(lock))  # cuda's lacks its vllm
    ensure(unpatched)
    commands.show("small")
    assert capsys.readouterr().out.splitlines()[-1] == "small has no patches"
    commands.verify("small")
    out = capsys.readouterr().out
    assert "ok  small has no patches\n" in out
    assert "1 packages as in the lock\n" in out
    assert "patches in place" not in out


def test_its_image_is_built_and_checked_without_a_series(unpatched: Stack, tmp_path: Path) -> None:
    given = arguments(Request(stack="serve", accelerator="cpu"))
    assert (given["PATCHES"], given["PATCH_LIST"]) == ("", "")
    assert check_patches(unpatched, tmp_path) == "small has no patches"
    (tmp_path / "env" / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    assert check_bytecode(unpatched, tmp_path) == 0


def test_a_step_of_the_image_that_changes_nothing_makes_an_empty_layer(tmp_path: Path) -> None:
    folder, out = tmp_path / "env", tmp_path / "out"
    folder.mkdir()
    (folder / "file.py").write_text("A = 1\n", encoding="utf-8")
    (tmp_path / "marker").touch()
    script = CHECKOUT / "ops" / "image" / "delta.sh"
    subprocess.run(["sh", script, tmp_path / "marker", folder, out], check=True)
    assert list(out.iterdir()) == []


def test_the_serve_stack_is_stock() -> None:
    assert load(STACKS / "serve").series is None
    done = subprocess.run(
        [sys.executable, "tasks.py", "patch.status", "--stack", "serve"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (20, 1)
    assert done.stderr.startswith("eyas: stack serve has no patches")
