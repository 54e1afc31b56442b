"""The real stages in the real CPU image: what a container is allowed, whose its files are, and the store it makes.

One store is made all along: each fault stops it somewhere, and the next run goes on there.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops import demo
from ops.container.assemble import assemble, this_host
from ops.container.gpus import Gpus
from ops.container.hub import write_token
from ops.container.runtime import DockerRuntime
from ops.container.spec import ContainerSpec, to_config
from ops.image.names import image_name
from ops.stack.model import STACKS, load
from ops.stage import StageCall
from tests.containers import running
from tests.containers.running import containers_of, finish, run, running_container, start, wait_until

ROOT = os.geteuid() == 0
TOKEN = "hf_" + "Zq7" * 9
# Samples of the demo, none of the longest: enough units to be stopped four times, and computed in some seconds.
SAMPLES = 48


@pytest.fixture(scope="module")
def target(cpu_image: str) -> Path:
    """The demo target, written in a container if it is not there."""
    return demo.ensure_target(DockerRuntime(load(STACKS / "extract"), Gpus()))


@pytest.fixture(scope="module")
def work(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tokenized samples, prepared in a container from some of the demo's conversations."""
    folder = tmp_path_factory.mktemp("work with a space, and a comma")
    lines = demo.CONVERSATIONS.read_text(encoding="utf-8").splitlines(keepends=True)
    some = sorted(lines, key=len)[10 : 10 + SAMPLES]
    (folder / "some.jsonl").write_text("".join(some), encoding="utf-8")
    flags = ["--input", str(folder / "some.jsonl"), "--model-path", str(target), "--output-dir", str(folder / "data")]
    code, out, err = run(["prepare", *DOCKER, *flags])
    assert code == 0, err
    assert f"prepare: written to {folder}/data/tokenized.jsonl" in out
    return folder


DOCKER = ["--runtime", "docker", "--gpus", "none"]
LOCAL = ["--runtime", "local"]


def extract(work: Path, target: Path, store: str) -> list[str]:
    """The flags of an extraction in many small units, by the engine that starts quickest."""
    return [
        *("--model-path", str(target), "--prepared-data", str(work / "data" / "tokenized.jsonl")),
        *("--output-dir", str(work / store), "--engine", "reference", "--batch-size", "1"),
    ]


def units(store: Path) -> int:
    return len(list((store / "shards").glob("*.json"))) if (store / "shards").is_dir() else 0


@pytest.mark.parametrize("fault", ["SIGINT", "SIGTERM", "SIGKILL", "container"])
def test_a_fault_in_the_middle_loses_no_unit(fault: str, engine: Any, target: Path, work: Path) -> None:
    store = work / "store"
    before = units(store)
    task = start(["extract", *DOCKER, *extract(work, target, "store")], {"HF_TOKEN": TOKEN})
    container = running_container(engine, work)
    done = wait_until(lambda: units(store) > before and units(store), "a unit of this run")
    if fault == "container":
        container.kill()
    else:
        os.killpg(task.pid, signal.Signals[fault]) if fault != "SIGKILL" else task.kill()
    code, _, err = finish(task)
    assert code == {"SIGINT": 130, "SIGTERM": 130, "SIGKILL": -9, "container": 57}[fault], err
    assert "Traceback" not in err
    wait_until(lambda: not containers_of(engine, work), "the container to be removed")
    wait_until(lambda: not running.process_ids_naming(f"guard.py {container.name}"), "the guard to end")
    assert done <= units(store) < SAMPLES
    assert (
        not (store / "manifest.json").exists()
        or json.loads((store / "manifest.json").read_text())["status"] != "complete"
    )


def test_the_store_of_all_these_runs_is_the_local_runtimes(target: Path, work: Path) -> None:
    done = units(work / "store")
    assert done >= 4
    code, out, err = run(["extract", *DOCKER, *extract(work, target, "store")], {"HF_TOKEN": TOKEN})
    assert code == 0, err
    assert f"{done} of {SAMPLES} units are done" in err
    assert out
    code, _, err = run(["extract", *LOCAL, *extract(work, target, "local")])
    assert code == 0, err
    ours, local = (json.loads((work / name / "manifest.json").read_text()) for name in ("store", "local"))
    assert ours["store_digest"] == local["store_digest"]
    assert ours["info"]["model_path"] == local["info"]["model_path"] == str(target)
    assert ours["info"]["prepared_data"] == local["info"]["prepared_data"]


def test_a_finished_store_verifies_in_a_container(work: Path) -> None:
    code, _, err = run(["verify", str(work / "store"), *DOCKER, "--reference", "--samples", "1"])
    assert code == 0, err


def test_files_belong_to_the_user_and_the_token_is_in_none_of_them(work: Path) -> None:
    for path in (work / "data", work / "store"):
        for file in (path, *path.rglob("*")):
            assert (file.stat().st_uid, file.stat().st_gid) == (os.getuid(), os.getgid()), file
            assert file.is_dir() or TOKEN.encode() not in file.read_bytes(), file


def first(work: Path, count: int, place: Path) -> Path:
    """A file with the first of the tokenized samples."""
    lines = (work / "data" / "tokenized.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    place.write_text("".join(lines[:count]), encoding="utf-8")
    return place


@pytest.mark.skipif(not ROOT, reason="another user's view needs root to take it")
def test_a_user_without_a_passwd_entry_gets_files_of_its_own(engine: Any, target: Path, work: Path) -> None:
    # Not in pytest's folder, nor root's home: another user may not enter those.
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        shutil.copytree(target, home / "target", copy_function=link_or_copy)
        data = first(work, 1, home / "tokenized.jsonl")
        home.chmod(0o755)
        os.chown(home, 54321, 54321)
        groups = Path("/var/run/docker.sock").stat().st_gid
        before = ["setpriv", "--reuid=54321", "--regid=54321", f"--groups={groups}", *running.READS_ALL]
        flags = [
            "--model-path",
            str(home / "target"),
            "--prepared-data",
            str(data),
            "--output-dir",
            str(home / "store"),
        ]
        own = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
        code, _, err = run(["extract", *DOCKER, *flags], own, before=before)
        assert code == 0, err
        made = [home / "store", *(home / "store").rglob("*"), home / "cache" / "eyas" / "container"]
        assert (home / "store" / "manifest.json") in made
        assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(54321, 54321)}


def link_or_copy(source: str, to: str) -> None:
    """A second name for a large file, where both are on one file system."""
    try:
        os.link(source, to)
    except OSError:
        shutil.copy2(source, to)


@pytest.mark.skipif(not ROOT, reason="mounting a small file system needs root")
def test_a_full_volume_is_a_sentence_and_the_next_run_completes(target: Path, work: Path, tmp_path: Path) -> None:
    volume, data = tmp_path / "volume", first(work, 2, tmp_path / "tokenized.jsonl")
    volume.mkdir()
    flags = ["--model-path", str(target), "--prepared-data", str(data), "--output-dir", str(volume / "store")]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(volume)], check=True)
    try:
        code, _, err = run(["extract", *DOCKER, *flags, "--engine", "reference"])
        assert code == 43, err
        assert "Traceback" not in err
        subprocess.run(["mount", "-o", "remount,size=64m", str(volume)], check=True)
        code, _, err = run(["extract", *DOCKER, *flags, "--engine", "reference"])
        assert code == 0, err
        assert units(volume / "store") == 1
    finally:
        subprocess.run(["umount", str(volume)], check=True)


LOOK = """
import json, os, socket
def fails(what):
    try:
        what()
    except OSError as error:
        return error.errno
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "ids": [os.getuid(), os.getgid()],
    "capabilities": [status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "no_new_privileges": status["NoNewPrivs"].strip(),
    "root": fails(lambda: open("/opt/eyas/written", "w")),
    "usr": fails(lambda: open("/written", "w")),
    "target": fails(lambda: open(os.environ["TARGET"] + "/written", "w")),
    "tmp": fails(lambda: open("/tmp/written", "w")),
    "cache": fails(lambda: open("/cache/written", "w").close() or os.remove("/cache/written")),
    "network": fails(lambda: socket.create_connection(("192.0.2.1", 80), 5)),
    "links": sorted(os.listdir("/sys/class/net")),
    "first": open("/proc/1/cmdline").read().split("\\0")[0],
    "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
    "token": open(os.environ["HF_TOKEN_PATH"]).read() if "HF_TOKEN_PATH" in os.environ else None,
}))
import sys, time
sys.stdout.flush()
time.sleep(float(os.environ["LINGER"]))
"""


@pytest.fixture(scope="module")
def inside(engine: Any, target: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What a container that may use the hub sees of itself, and what the engine shows of it; cut from the network."""
    folder = tmp_path_factory.mktemp("inside")
    patch = pytest.MonkeyPatch()
    patch.setenv("HF_TOKEN", TOKEN)
    patch.setenv("HF_HOME", str(folder / "hub"))
    patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    name = "eyas-test-inside"
    try:
        host = this_host(name)
        for made in (host.cache, folder / "hub", folder / "store"):
            made.mkdir(parents=True)
        write_token(host.environment, host.secrets)
        call = StageCall(stage="extract", arguments=(), reads=(target,), writes=(folder / "store",), offline=False)
        spec = assemble(call, image_name("extract", "cpu"), Gpus(), replace(host, terminal=None))
        environment = {**spec.environment, "TARGET": str(target), "LINGER": "60"}
        cut = replace(
            spec, network="none", entrypoint="/opt/eyas/env/bin/python", command=("-c", LOOK), environment=environment
        )
        yield _seen(engine, cut, name, spec.network)
    finally:
        patch.undo()
        shutil.rmtree(folder)


def _seen(engine: Any, spec: ContainerSpec, name: str, network: str) -> dict[str, Any]:
    """The container's report, and what the engine shows while it runs."""
    engine.api.create_container_from_config(to_config(spec, engine.api._version), name)
    try:
        engine.api.start(name)
        text = wait_until(lambda: engine.api.logs(name).endswith(b"}\n") and engine.api.logs(name), "the report")
        shown = engine.api.inspect_container(name)
    finally:
        engine.api.remove_container(name, force=True)
    assert shown["State"]["Running"] is True
    image = engine.images.get(spec.image)
    return {
        **json.loads(text),
        "inspect": json.dumps(shown),
        "logs": text.decode(),
        "image": json.dumps(image.history()) + json.dumps(image.attrs),
        "hub_network": network,
    }


def test_a_container_has_no_rights_but_the_users(inside: dict[str, Any]) -> None:
    assert inside["ids"] == [os.getuid(), os.getgid()]
    assert set(inside["capabilities"]) == {"0" * 16}
    assert inside["no_new_privileges"] == "1"


def test_a_container_writes_only_where_it_is_meant_to(inside: dict[str, Any]) -> None:
    read_only = 30  # EROFS
    assert (inside["root"], inside["usr"], inside["target"]) == (read_only,) * 3
    assert (inside["tmp"], inside["cache"]) == (None, None)


def test_a_container_has_no_network_and_its_own_shared_memory(inside: dict[str, Any]) -> None:
    assert inside["links"] == ["lo"]
    assert inside["network"] == 101  # ENETUNREACH
    assert inside["shm"] == 1 << 30
    assert "docker-init" in inside["first"]


def test_a_token_is_a_file_in_the_container_and_shown_nowhere(inside: dict[str, Any]) -> None:
    assert inside["token"] == TOKEN
    assert inside["hub_network"] == "bridge"
    for place in ("inspect", "image"):
        assert TOKEN not in inside[place], place
    # The report itself names it once: it is what the container was asked to read.
    assert inside["logs"].count(TOKEN) == 1
