"""--runtime auto says what it chose and why, and never chooses what was not asked for."""

from __future__ import annotations

from functools import partial

import pytest

from ops import probes
from ops.container import runtime
from ops.container.choice import choose
from ops.container.errors import GpuError, ImageMissingError, NoEngineError, RuntimeFlagError
from ops.container.runtime import DockerRuntime
from ops.errors import UserError
from ops.stack.model import STACKS, load
from ops.stage import LocalRuntime

GPUS = ("0", "GPU-3f2b8c1e-9a7d-4e5f-8b6a-1c2d3e4f5a6b")


@pytest.fixture
def pick(monkeypatch: pytest.MonkeyPatch):
    """Chooses on a machine with these GPUs, whose engine says this of the image."""
    monkeypatch.delenv("EYAS_RUNTIME", raising=False)

    def choice(asked: str | None, gpus: str | None, present: tuple[str, ...], image: str | UserError):
        monkeypatch.setattr(probes, "gpus", lambda: present)

        def look(_: DockerRuntime) -> str:
            if isinstance(image, UserError):
                raise image
            return image

        monkeypatch.setattr(runtime.DockerRuntime, "image", property(look))
        return choose(load(STACKS / "extract"), asked, gpus)

    return choice


@pytest.mark.parametrize(
    ("gpus", "present", "image", "kind", "why"),
    [
        (
            None,
            (),
            NoEngineError("no engine"),
            LocalRuntime,
            "local: no GPU here, and the CPU stack installs by itself",
        ),
        (None, (), "sha256:1", LocalRuntime, "local: no GPU here"),
        ("none", GPUS, "sha256:1", LocalRuntime, "local: --gpus none"),
        (None, GPUS, "sha256:1", DockerRuntime, "docker: a GPU, an engine, and an image of this checkout"),
        (
            None,
            GPUS,
            NoEngineError("no engine"),
            LocalRuntime,
            "local: the CPU stack, although there is a GPU: no engine",
        ),
        (
            None,
            GPUS,
            ImageMissingError("no image"),
            LocalRuntime,
            "local: the CPU stack, although there is a GPU: no image",
        ),
        ("0", (), NoEngineError("no engine"), DockerRuntime, "docker: --gpus asks for GPUs"),
    ],
)
def test_auto_chooses_and_says_why_in_one_line(
    gpus: str | None,
    present: tuple[str, ...],
    image: str | UserError,
    kind: type,
    why: str,
    pick: partial[LocalRuntime | DockerRuntime],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert isinstance(pick("auto", gpus, present, image), kind)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert f"eyas: runtime {why}" in said.err


def test_what_is_asked_for_is_taken_without_a_word(
    pick: partial[LocalRuntime | DockerRuntime], capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(pick("local", None, GPUS, "sha256:1"), LocalRuntime)
    assert isinstance(pick("local", "none", (), "sha256:1"), LocalRuntime)
    docker = pick("docker", None, (), "sha256:1")
    assert isinstance(docker, DockerRuntime)
    assert not docker.gpus
    docker = pick("docker", None, GPUS, "sha256:1")
    assert isinstance(docker, DockerRuntime)
    assert docker.gpus.every
    assert capsys.readouterr().err == ""


def test_the_variable_counts_where_the_flag_is_not_given(
    pick: partial[LocalRuntime | DockerRuntime], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EYAS_RUNTIME", "docker")
    assert isinstance(pick(None, None, (), "sha256:1"), DockerRuntime)
    assert isinstance(pick("local", None, (), "sha256:1"), LocalRuntime)
    monkeypatch.setenv("EYAS_RUNTIME", "podman")
    with pytest.raises(RuntimeFlagError, match="podman"):
        pick(None, None, (), "sha256:1")


@pytest.mark.parametrize("gpus", ["all", "0"])
def test_the_local_runtime_refuses_gpus_that_it_would_not_use(
    gpus: str, pick: partial[LocalRuntime | DockerRuntime]
) -> None:
    with pytest.raises(GpuError, match="the local runtime uses no GPU") as caught:
        pick("local", gpus, GPUS, "sha256:1")
    assert caught.value.exit_code == 54
