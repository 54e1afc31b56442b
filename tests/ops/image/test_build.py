"""What a build is told: the stack's own pins, what replaces them, and nothing that could not be recorded."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ops.container.image import missing
from ops.errors import StackError
from ops.image import build as module
from ops.image import commands, reproducible
from ops.image.build import Request, arguments, revision, secrets_of
from ops.image.errors import BuildError
from ops.image.names import image_name
from ops.image.source import pipeline_digest
from ops.paths import CHECKOUT
from ops.stack.digest import stack_digest
from ops.stack.model import STACKS, load

CUDA = Request(accelerator="cuda")


def test_the_cuda_image_is_built_from_the_pinned_bases_and_compiles_flash_attn() -> None:
    given = arguments(CUDA)
    assert given["BASE_IMAGE"].startswith("nvidia/cuda:12.8.1-devel-ubuntu24.04@sha256:")
    assert given["RUN_IMAGE"].startswith("nvidia/cuda:12.8.1-runtime-ubuntu24.04@sha256:")
    assert given["BASE_DIGEST"] == given["BASE_IMAGE"].split("@")[1]
    assert (given["SOURCE_BUILDS"], given["SOURCE_PACKAGES"]) == ("build", "flash-attn")
    assert given["SOURCE_BUILD_ENVIRONMENT"] == "FLASH_ATTENTION_FORCE_BUILD=TRUE"
    assert given["CUDA_ARCHS"] == "90;100;120"


def test_the_dockerfiles_own_defaults_are_the_stacks() -> None:
    text = (CHECKOUT / "Dockerfile").read_text(encoding="utf-8")
    for name in ("BASE_IMAGE", "RUN_IMAGE", "SOURCE_PACKAGES", "CUDA_ARCHS", "SOURCE_BUILD_ENVIRONMENT", "PATCHES"):
        assert f"ARG {name}={arguments(CUDA)[name]}\n" in text


def test_the_cpu_image_has_nothing_to_compile() -> None:
    given = arguments(Request(accelerator="cpu"))
    assert (given["SOURCE_BUILDS"], given["SOURCE_PACKAGES"]) == ("skip", "")
    assert given["RUN_IMAGE"] == given["BASE_IMAGE"]


def test_a_base_image_of_the_users_replaces_both() -> None:
    mirror = "mirror.example/cuda@sha256:" + "1" * 64
    given = arguments(replace(CUDA, base_image=mirror))
    assert given["BASE_IMAGE"] == given["RUN_IMAGE"] == mirror
    assert given["RUN_DIGEST"] == "sha256:" + "1" * 64


@pytest.mark.parametrize(("asked", "given"), [("", "20261101T000000Z"), ("none", ""), ("20270101T000000Z",) * 2])
def test_system_packages_come_from_the_pinned_moment_unless_told_otherwise(asked: str, given: str) -> None:
    assert arguments(replace(CUDA, apt_snapshot=asked))["APT_SNAPSHOT"] == given


def test_the_digests_passed_are_those_of_the_checkout() -> None:
    given = arguments(CUDA)
    assert given["STACK_DIGEST"] == stack_digest(load(STACKS / "extract"), "cuda")
    assert given["PIPELINE_DIGEST"] == pipeline_digest()
    assert given["PATCH_LIST"].startswith("0001-pass-is-encoder-decoder.patch 0002-")


def test_a_changed_renamed_or_moved_byte_of_the_stages_is_another_digest(tmp_path: Path) -> None:
    digests = set()
    for name, content in (("a.py", "1"), ("a.py", "2"), ("b.py", "1"), ("sub/a.py", "1"), ("a.py", "")):
        folder = tmp_path / str(len(digests))
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(content)
        digests.add(pipeline_digest(folder))
    assert len(digests) == 5


def git(folder: Path, *arguments: str) -> None:
    names = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(folder), *names, *arguments], check=True, capture_output=True)


def test_a_checkout_with_changes_is_not_called_by_its_commit(tmp_path: Path) -> None:
    assert revision(tmp_path) == "unknown"
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-qm", "one")
    clean = revision(tmp_path)
    assert len(clean) == 40
    (tmp_path / "file").write_text("2")
    assert revision(tmp_path) == f"{clean}-dirty"


@pytest.mark.parametrize(
    ("found", "told"), [("0" * 40 + "-dirty", "not committed; commit them"), ("unknown", "is no git repository")]
)
def test_two_builds_are_not_compared_when_the_checkout_is_not_what_would_be_built(
    found: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproducible, "has_image_store", lambda: True)
    monkeypatch.setattr(reproducible, "revision", lambda _: found)
    with pytest.raises(BuildError, match=told):
        reproducible.check(CUDA)


def test_an_engine_with_the_old_store_is_told_what_to_turn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproducible, "has_image_store", lambda: False)
    with pytest.raises(BuildError, match=r'"containerd-snapshotter": true'):
        reproducible.check(CUDA)


def test_secrets_are_the_files_given_or_the_machines_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines, given = tmp_path / "machine.pem", tmp_path / "given.pem"
    machines.touch()
    given.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(machines))
    monkeypatch.delenv("UV_CONFIG_FILE", raising=False)
    assert secrets_of("", "") == {"ca": machines}
    assert secrets_of(str(given), "") == {"ca": given}
    with pytest.raises(BuildError, match=r"none.toml, the build's secret uv, is not a file"):
        secrets_of("", str(tmp_path / "none.toml"))


def test_a_failed_build_is_one_sentence_and_what_it_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "command", lambda *_: ["sh", "-c", "echo the reason; exit 3"])
    with pytest.raises(BuildError, match="could not be built"):
        module.build(CUDA, "type=cacheonly", quiet=True)
    assert "the reason" in capsys.readouterr().err


GIVEN = {
    **dict.fromkeys(("base_image", "run_image", "only", "max_jobs", "cuda_archs", "network", "apt_snapshot"), ""),
    "accelerator": "cpu",
    "skip_source_builds": False,
    "no_cache": False,
    "ca": "",
    "uv_config": "",
}


@pytest.mark.parametrize(
    ("asked", "built"), [("serve", ["serve"]), ("extract", ["extract"]), ("all", ["extract", "train", "serve"])]
)
def test_one_stack_is_built_and_checked_or_all(
    asked: str, built: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []
    monkeypatch.setattr(commands, "build", lambda request: done.append(request.stack) or f"eyas-{request.stack}:cpu")
    monkeypatch.setattr(commands, "image_digest", lambda name: f"sha256:{name}")
    monkeypatch.setattr(commands, "smoke", lambda request: done.append(request.stack))
    commands.run_build({**GIVEN, "stack": asked, "check_reproducible": False})
    assert capsys.readouterr().out.split("\n")[:-1] == [f"eyas-{name}:cpu sha256:eyas-{name}:cpu" for name in built]
    commands.run_smoke({**GIVEN, "stack": asked})
    assert done == built * 2


def test_a_stack_that_is_not_there_is_not_built() -> None:
    with pytest.raises(StackError, match="known stacks: extract, serve, train"):
        commands.run_build({**GIVEN, "stack": "every", "check_reproducible": False})


@pytest.mark.parametrize(
    ("stack", "variable", "command"),
    [
        ("extract", "EYAS_IMAGE", "./eyas build --accelerator cpu"),
        ("train", "EYAS_TRAIN_IMAGE", "./eyas build --accelerator cpu --stack train"),
        ("serve", "EYAS_SERVE_IMAGE", "./eyas build --accelerator cpu --stack serve"),
    ],
)
def test_each_stack_has_an_image_and_a_variable_that_names_another(
    stack: str, variable: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EYAS_IMAGE", "EYAS_TRAIN_IMAGE", "EYAS_SERVE_IMAGE"):
        monkeypatch.delenv(name, raising=False)
    assert image_name(stack, "cpu") == f"eyas-{stack}:cpu"
    monkeypatch.setenv(variable, "mirror.example/other:1")
    assert image_name(stack, "cpu") == "mirror.example/other:1"
    told = missing(f"eyas-{stack}:cpu", stack, "cpu")
    assert f"make it with {command}, load it" in told
    assert told.endswith(f"in {variable}")


@pytest.mark.parametrize(
    ("stack", "packages", "patches"),
    [("train", "flash-attn", "speculators-0.9.0"), ("serve", "", ""), ("extract", "flash-attn", "speculators-0.3.0")],
)
def test_a_stacks_cuda_image_is_built_from_its_own_pins(stack: str, packages: str, patches: str) -> None:
    given = arguments(Request(stack=stack, accelerator="cuda"))
    assert (given["STACK"], given["SOURCE_PACKAGES"], given["PATCHES"]) == (stack, packages, patches)
    assert given["SOURCE_BUILDS"] == ("build" if packages else "skip")
    assert given["BASE_IMAGE"] == arguments(CUDA)["BASE_IMAGE"]
