"""A container as the engine and as a shell are told of it, in full."""

# ruff: noqa: S108 - paths of a container
from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from ops.container.assemble import Host, assemble, folders
from ops.container.commandline import docker_run, printed
from ops.container.errors import RuntimeFlagError, StartError
from ops.container.gpus import Gpus
from ops.container.shm import shm_size
from ops.container.spec import to_config
from ops.paths import CHECKOUT
from ops.stage import StageCall

GIB = 1 << 30
CALL = StageCall(
    stage="extract",
    arguments=("--model-path=/models/kimi", "--output-dir=/runs/it's a run, really"),
    reads=(Path("/models/kimi"), Path("/data/tokenized.jsonl")),
    writes=(Path("/runs/it's a run, really"),),
    tp_size=8,
)
HOST = Host(
    uid=1000,
    gid=100,
    groups=(27, 105),
    environment={"HF_TOKEN": "hf_secret", "TERM": "xterm", "PATH": "/bin"},
    home=Path("/home/u"),
    cache=Path("/home/u/.cache/eyas/container"),
    secrets=Path("/home/u/.cache/eyas/secrets/x"),
    terminal=None,
)


def test_the_engine_is_told_everything_that_keeps_a_container_in_bounds() -> None:
    config = to_config(assemble(CALL, "eyas-extract:cuda", Gpus(every=True), HOST), "1.45")
    host = config["HostConfig"]
    assert config["User"] == "1000:100"
    assert config["Cmd"] == ["extract", *CALL.arguments]
    assert config["Labels"] == {
        "io.eyas.stage": "extract",
        "io.eyas.checkout": str(CHECKOUT),
        "io.eyas.user": "1000",
    }
    assert not config.get("Env")
    assert (config["Tty"], config["OpenStdin"]) == (False, False)
    assert not config["ExposedPorts"]
    assert host == {
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "IpcMode": "private",
        "ShmSize": 8 * GIB,
        "Init": True,
        "NetworkMode": "none",
        "Tmpfs": {"/tmp": "exec,mode=1777"},
        "GroupAdd": ["27", "105"],
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "2"}},
        "Mounts": [
            {"Target": "/cache", "Source": "/home/u/.cache/eyas/container", "Type": "bind", "ReadOnly": False},
            {"Target": str(CALL.writes[0]), "Source": str(CALL.writes[0]), "Type": "bind", "ReadOnly": False},
            {"Target": "/models/kimi", "Source": "/models/kimi", "Type": "bind", "ReadOnly": True},
            {"Target": "/data/tokenized.jsonl", "Source": "/data/tokenized.jsonl", "Type": "bind", "ReadOnly": True},
        ],
        "DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": [], "Capabilities": [["gpu"]], "Options": {}}],
    }


def test_the_docker_run_line_says_the_same() -> None:
    line = printed(assemble(CALL, "eyas-extract:cuda", Gpus(devices=("0", "1")), HOST), ["/runs/it's a run, really"])
    made, _, ran = line.partition(" && ")
    assert shlex.split(made) == ["mkdir", "-p", "/runs/it's a run, really"]
    assert shlex.split(ran) == [
        *("docker", "run", "--rm", "--init", "--read-only", "--cap-drop", "ALL"),
        *("--security-opt", "no-new-privileges", "--ipc", "private", "--shm-size", str(8 * GIB), "--network", "none"),
        *("--tmpfs", "/tmp:exec,mode=1777", "--log-driver", "json-file"),
        *("--log-opt", "max-size=10m", "--log-opt", "max-file=2", "--user", "1000:100"),
        *("--group-add", "27", "--group-add", "105"),
        *("--mount", "type=bind,source=/home/u/.cache/eyas/container,target=/cache"),
        "--mount",
        'type=bind,"source=/runs/it\'s a run, really","target=/runs/it\'s a run, really"',
        *("--mount", "type=bind,source=/models/kimi,target=/models/kimi,readonly"),
        *("--mount", "type=bind,source=/data/tokenized.jsonl,target=/data/tokenized.jsonl,readonly"),
        *("--label", "io.eyas.stage=extract", "--label", f"io.eyas.checkout={CHECKOUT}"),
        *("--label", "io.eyas.user=1000", "--gpus", '"device=0,1"', "eyas-extract:cuda", "extract", *CALL.arguments),
    ]


def test_a_terminal_is_given_only_where_there_is_one() -> None:
    spec = assemble(CALL, "i", Gpus(), replace(HOST, terminal=(33, 111)))
    config = to_config(spec, "1.45")
    assert (config["Tty"], config["HostConfig"]["ConsoleSize"], config["Env"]) == (True, [33, 111], ["TERM=xterm"])
    assert "--tty" in docker_run(spec)
    assert "--tty" not in docker_run(assemble(CALL, "i", Gpus(), HOST))


def test_without_a_hub_a_container_has_neither_network_nor_token() -> None:
    spec = assemble(CALL, "i", Gpus(), HOST)
    assert spec.network == "none"
    assert "secret" not in str(spec).replace("secrets", "")


def test_a_target_on_the_hub_gets_network_cache_and_the_token_as_a_file() -> None:
    spec = assemble(replace(CALL, offline=False), "i", Gpus(), HOST)
    assert spec.network == "bridge"
    assert spec.environment == {"HF_HUB_OFFLINE": "0", "HF_TOKEN_PATH": "/run/secrets/hf_token"}
    mounts = {str(mount.target): (str(mount.source), mount.read_only) for mount in spec.mounts}
    assert mounts["/hf"] == ("/home/u/.cache/huggingface", False)
    assert mounts["/run/secrets/hf_token"] == ("/home/u/.cache/eyas/secrets/x/hf_token", True)
    assert "hf_secret" not in str(spec)
    assert Path("/home/u/.cache/huggingface") in folders(replace(CALL, offline=False), HOST)


def test_a_hub_that_the_user_keeps_offline_is_only_a_cache() -> None:
    host = replace(HOST, environment=HOST.environment | {"HF_HUB_OFFLINE": "1", "HF_HOME": "/big/hf"})
    spec = assemble(replace(CALL, offline=False), "i", Gpus(), host)
    assert (spec.network, dict(spec.environment)) == ("none", {})
    assert str(next(mount.source for mount in spec.mounts if str(mount.target) == "/hf")) == "/big/hf"


@pytest.mark.parametrize(
    ("value", "tp_size", "size"),
    [
        ("", 1, GIB),
        ("", 8, 8 * GIB),
        ("2g", 1, 2 * GIB),
        ("8gb", 8, 8 * GIB),
        ("512MiB", 1, GIB // 2),
        ("1073741824", 1, GIB),
    ],
)
def test_shared_memory_grows_with_the_devices_unless_it_is_given(value: str, tp_size: int, size: int) -> None:
    assert shm_size({"EYAS_SHM_SIZE": value}, tp_size) == size


def test_shared_memory_too_small_for_the_queues_is_refused() -> None:
    # 160 MiB to all workers and 240 MiB from each.
    assert shm_size({"EYAS_SHM_SIZE": "640m"}, 2) == 640 << 20
    with pytest.raises(StartError, match="640 MiB") as caught:
        shm_size({"EYAS_SHM_SIZE": "639m"}, 2)
    assert caught.value.exit_code == 56
    with pytest.raises(RuntimeFlagError, match="no size"):
        shm_size({"EYAS_SHM_SIZE": "much"}, 1)
