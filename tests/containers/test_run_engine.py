"""What is wrong with an engine, its images and its GPUs: found out before a stage runs, and told in one line."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.container.assemble import assemble, this_host
from ops.container.commandline import printed
from ops.container.engine import any_cli
from ops.container.errors import ImageMissingError
from ops.container.gpus import Gpus, parse
from ops.container.mounts import make_folders
from ops.container.runtime import DockerRuntime
from ops.container.spec import to_config
from ops.stack.model import STACKS, load
from ops.stage import StageCall
from tests.containers import running
from tests.containers.private_engine import PrivateEngine, private_engine
from tests.containers.running import begun, containers_of, finish, run, stage_flags, wait_until

ROOT = os.geteuid() == 0


@pytest.fixture
def own(tmp_path: Path) -> list[str]:
    """The flags of a stage on folders of this test, in a container."""
    return ["extract", "--runtime", "docker", *stage_flags(tmp_path)]


def refused(flags: list[str], environment: dict[str, str], **how: Any) -> tuple[int, str]:
    """Exit code and the one line of a command that must be refused."""
    code, out, err = run(flags, environment, **how)
    assert out == ""
    assert err.startswith("eyas: ")
    assert err.count("\n") == 1, err
    return code, err


def test_no_engine_is_a_sentence(own: list[str], tmp_path: Path) -> None:
    code, line = refused([*own, "--gpus", "none"], {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert code == 50
    assert f"no Docker engine at unix://{tmp_path}/none.sock" in line


def test_a_context_is_honoured_as_docker_does(own: list[str], tmp_path: Path) -> None:
    configuration = tmp_path / "configuration"
    docker = [shutil.which("docker") or "/usr/bin/docker", "--config", str(configuration), "context"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
    for name in ("one", "other"):
        place = f"host=unix://{tmp_path}/{name}.sock"
        subprocess.run([*docker, "create", name, "--docker", place], check=True, capture_output=True, env=clean)
    subprocess.run([*docker, "use", "one"], check=True, capture_output=True, env=clean)
    environment = {"DOCKER_CONFIG": str(configuration), "DOCKER_HOST": ""}
    for more, name in ({}, "one"), ({"DOCKER_CONTEXT": "other"}, "other"):
        code, line = refused([*own, "--gpus", "none"], environment | more)
        assert (code, f"no Docker engine at unix://{tmp_path}/{name}.sock" in line) == (50, True)
    code, line = refused([*own, "--gpus", "none"], environment | {"DOCKER_CONTEXT": "third"})
    assert (code, "no docker context third is found" in line) == (50, True)


@pytest.mark.skipif(not ROOT, reason="another user's view needs root to take it")
def test_a_user_outside_the_group_is_told_so(engine: Any, own: list[str], tmp_path: Path) -> None:
    own[own.index("--output-dir") + 1] = str(tmp_path)
    before = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", *running.READS_ALL]
    environment = {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    code, line = refused([*own, "--gpus", "none"], environment, before=before)
    assert code == 51
    assert "usermod -aG docker" in line


def test_an_image_that_is_not_there_is_a_sentence(engine: Any, own: list[str]) -> None:
    code, line = refused([*own, "--gpus", "none"], {"EYAS_IMAGE": "eyas-test-stage:no-such"})
    assert code == 52
    assert "the engine has no image eyas-test-stage:no-such" in line
    assert "./eyas build --accelerator cpu" in line


@pytest.mark.parametrize("label", ["io.eyas.stack.digest", "io.eyas.pipeline.digest"])
def test_an_image_older_than_the_checkout_is_refused(
    label: str, engine: Any, own: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = running.labels("cpu") | {label: "0" * 64}
    monkeypatch.setattr(running, "labels", lambda _: old)
    with running.stand_in_image(engine, "eyas-test-stage:old") as image:
        code, line = refused([*own, "--gpus", "none"], {"EYAS_IMAGE": image})
    assert code == 53
    assert "is older than the checkout" in line
    assert label.split(".")[2] in line


def test_an_image_removed_between_check_and_start_is_a_sentence(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EYAS_IMAGE", "eyas-test-stage:removed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    runtime = DockerRuntime(load(STACKS / "extract"), Gpus())
    with running.stand_in_image(engine, "eyas-test-stage:removed", "echo never"):
        assert runtime.image
    with pytest.raises(ImageMissingError, match="the image was removed") as caught:
        runtime.run(StageCall(stage="extract", arguments=(), writes=(tmp_path / "store",)))
    assert caught.value.exit_code == 52
    assert containers_of(engine, tmp_path) == []


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="asks for the refusal of a machine with no GPU")
@pytest.mark.parametrize("gpus", ["all", "0", "0,1", "GPU-3f2b8c1e-9a7d-4e5f-8b6a-1c2d3e4f5a6b"])
def test_the_engines_refusal_of_gpus_is_a_clear_sentence(
    gpus: str, engine: Any, own: list[str], tmp_path: Path
) -> None:
    with running.stand_in_image(engine, "eyas-test-stage:cuda", accelerator="cuda") as image:
        code, line = refused([*own, "--gpus", gpus], {"EYAS_IMAGE": image})
    assert code == 54
    assert "no NVIDIA GPU" in line
    assert "--gpus none" in line
    assert containers_of(engine, tmp_path) == []


def test_a_missing_and_an_unreadable_mount_are_named(engine: Any, own: list[str], tmp_path: Path) -> None:
    with running.stand_in_image(engine, "eyas-test-stage:mounts", "echo never") as image:
        (tmp_path / "target").rmdir()
        code, line = refused([*own, "--gpus", "none"], {"EYAS_IMAGE": image})
        assert (code, f"cannot mount {tmp_path}/target: it does not exist" in line) == (56, True)
        (tmp_path / "target").mkdir(mode=0o000)
        code, line = refused([*own, "--gpus", "none"], {"EYAS_IMAGE": image})
        assert (code, f"cannot mount {tmp_path}/target: this user may not read it" in line) == (56, True)
        (tmp_path / "target").chmod(0o755)
        (tmp_path / "store").rmdir() if (tmp_path / "store").exists() else None
        (tmp_path / "store").write_text("a file", encoding="utf-8")
        code, line = refused([*own, "--gpus", "none"], {"EYAS_IMAGE": image})
        assert (code, f"cannot make {tmp_path}/store" in line) == (56, True)


def test_too_small_a_shared_memory_is_refused(engine: Any, own: list[str]) -> None:
    with running.stand_in_image(engine, "eyas-test-stage:shm", "echo never") as image:
        environment = {"EYAS_IMAGE": image, "EYAS_SHM_SIZE": "64m"}
        code, line = refused([*own, "--gpus", "none", "--tp-size", "8"], environment)
    assert (code, "2080 MiB" in line) == (56, True)


MIG = "MIG-6cc98505-678d-5f4b-9b75-3a0f1e2d4c5b"
GPU = "GPU-3f2b8c1e-9a7d-4e5f-8b6a-1c2d3e4f5a6b"


@pytest.mark.parametrize("gpus", ["none", "all", "0", "0,1,2,3,4,5,6,7", f"{GPU},{MIG}"])
def test_the_docker_run_line_makes_the_same_container(gpus: str, engine: Any, tmp_path: Path) -> None:
    """What --dry-run prints, given to the docker command, against what the task sends: as the engine shows both."""
    strange = tmp_path / 'it\'s a "run", really'
    host = replace(this_host("x"), cache=tmp_path / "cache", groups=(27, 105), environment={}, terminal=None)
    call = StageCall(stage="extract", arguments=("--layer-ids", "1 2", "$HOME"), reads=(tmp_path,), writes=(strange,))
    make_folders([strange, host.cache])
    with running.stand_in_image(engine, "eyas-test-stage:same") as image:
        spec = assemble(call, image, parse(gpus), host)
        line = printed(spec, []).partition(" && ")[2].replace("docker run --rm", f"{any_cli()} create", 1)
        made = subprocess.run(["sh", "-c", line], check=True, capture_output=True, text=True).stdout.strip()
        ours = engine.api.create_container_from_config(to_config(spec, engine.api._version))["Id"]
        try:
            by_command, by_task = (engine.api.inspect_container(one) for one in (made, ours))
        finally:
            for one in (made, ours):
                engine.api.remove_container(one)
    for shown in (by_command, by_task):
        # The command sends the size of the terminal it is run in, and empty lists for what docker-py leaves out.
        shown["HostConfig"].pop("ConsoleSize")
        shown["HostConfig"] = {name: value or None for name, value in shown["HostConfig"].items()}
        for request in shown["HostConfig"]["DeviceRequests"] or []:
            request["DeviceIDs"] = request["DeviceIDs"] or []
    assert by_task["HostConfig"] == by_command["HostConfig"]
    same = ("User", "Cmd", "Entrypoint", "Env", "Labels", "Tty", "OpenStdin", "Image", "StopSignal", "ExposedPorts")
    assert {name: by_task["Config"].get(name) for name in same} == {
        name: by_command["Config"].get(name) for name in same
    }


@pytest.fixture(scope="module")
def stoppable(engine: Any) -> Iterator[PrivateEngine]:
    """An engine that may be stopped, which has the stand-in image."""
    if not ROOT:
        pytest.skip("an engine of one's own needs root")
    with private_engine() as made, running.stand_in_image(made.client, "eyas-test-stage:waits"):
        yield made


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_an_engine_stopped_in_the_middle_is_a_sentence_and_the_next_run_clears_up(
    how: signal.Signals, stoppable: PrivateEngine, own: list[str], tmp_path: Path
) -> None:
    environment = {"DOCKER_HOST": stoppable.address, "EYAS_IMAGE": "eyas-test-stage:waits"}
    task, container = begun(stoppable.client, tmp_path, [*own, "--gpus", "none"], environment)
    stoppable.stop(how)
    code, _, err = finish(task)
    assert code == 57
    assert container.name in err
    assert "Traceback" not in err
    wait_until(lambda: not running.process_ids_naming(f"guard.py {container.name}"), "the guard to end")
    stoppable.start()
    again, _ = begun(stoppable.client, tmp_path, [*own, "--gpus", "none"], environment)
    assert len(containers_of(stoppable.client, tmp_path)) == 1
    os.killpg(again.pid, signal.SIGINT)
    assert finish(again)[0] == 130
    assert containers_of(stoppable.client, tmp_path) == []
