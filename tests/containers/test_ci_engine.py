""".ci/engine: an engine that answers is left alone; one that it started is stopped with all that runs in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ops.container.engine import docker_cli
from ops.paths import CHECKOUT
from tests.containers import running

SCRIPT = CHECKOUT / ".ci" / "engine"
# A machine of its own: no engine answers, nothing of the real one's state is seen, and no process outlives it.
ELSEWHERE = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-euc")
ALONE = """
mount --make-rprivate /
mount -t tmpfs none /run
mount -t tmpfs none /var/lib/docker
mount -t proc none /proc
ip link set lo up
"""
WHOLE_LIFE = """
"$ENGINE" start
"$ENGINE" start
"$DOCKER" import "$ROOT" stand-in:1 >/dev/null
"$DOCKER" run --detach --network none stand-in:1 /bin/sleep 1000 >/dev/null
echo "image store: $("$DOCKER" info --format '{{.DriverStatus}}')"
echo "runs: $("$DOCKER" ps --format '{{.Command}}')"
"$ENGINE" stop
echo "left: $(ps -e -o comm= | grep -c 'docker\\|containerd\\|sleep' || true)"
"""


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(SCRIPT), *arguments], capture_output=True, text=True, check=False)


def test_an_engine_that_answers_is_used_and_not_stopped(engine: Any) -> None:
    before = engine.info()["ID"]
    started = call("start")
    assert started.returncode == 0
    assert "using the engine that runs here" in started.stderr
    # Where .ci/run has started it for this very test run, `stop` would rightly stop it.
    if not Path("/run/eyas-engine/pid").exists():
        stopped = call("stop")
        assert stopped.returncode == 0
        assert "nothing to stop" in stopped.stderr
    assert engine.info()["ID"] == before


def test_an_engine_that_was_started_is_stopped_with_its_containers(engine: Any, tmp_path: Path) -> None:
    if os.getuid() or not shutil.which("dockerd"):
        pytest.skip("only root can start an engine, and dockerd has to be installed")
    (tmp_path / "root.tar").write_bytes(running._root())
    variables = {"ENGINE": str(SCRIPT), "DOCKER": docker_cli()[0], "ROOT": str(tmp_path / "root.tar")}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
    done = subprocess.run(
        [*ELSEWHERE, ALONE + WHOLE_LIFE],
        env=clean | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    assert "io.containerd.snapshotter" in done.stdout
    assert 'runs: "/bin/sleep 1000"' in done.stdout
    assert done.stdout.splitlines()[-1] == "left: 0"
    said = done.stderr
    assert said.index("started dockerd") < said.index("using the engine that runs here") < said.index("stopped dockerd")
