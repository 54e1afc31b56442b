"""A Docker engine of a test's own, which may be stopped: its data, its sockets and its containerd in a folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
from docker.errors import DockerException

from tests.containers.running import wait_until


class PrivateEngine:
    """A dockerd without networks, run as root."""

    def __init__(self, folder: Path) -> None:
        self.address = f"unix://{folder}/engine.sock"
        self._log = (folder / "dockerd.log").open("ab")
        (folder / "daemon.json").write_text("{}", encoding="utf-8")  # the machine's own file is not meant for it
        places = {"data-root": "data", "exec-root": "exec", "pidfile": "pid", "config-file": "daemon.json"}
        # In a network namespace of its own: told to have no bridge, dockerd removes the other engine's.
        self._command = [
            "unshare",
            "--net",
            "dockerd",
            "--host",
            self.address,
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
        ]
        self._command += [f"--{flag}={folder / name}" for flag, name in places.items()]
        self.start()

    def start(self) -> None:
        """Start it and wait for its answer."""
        self.process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log, start_new_session=True)
        self.client = docker.DockerClient(base_url=self.address, version="1.44")

        def answers() -> bool:
            assert self.process.poll() is None, Path(self._log.name).read_text(encoding="utf-8")[-2000:]
            with contextlib.suppress(DockerException, OSError):
                return bool(self.client.ping())
            return False

        wait_until(answers, "the private engine to answer")

    def stop(self, how: signal.Signals) -> None:
        """Stop it; after SIGKILL its containers go on."""
        self.process.send_signal(how)
        self.process.wait(60)


@contextmanager
def private_engine() -> Iterator[PrivateEngine]:
    """An engine that is gone afterwards, with all it ran."""
    # Not pytest's folder: the path of a socket has 107 characters at most.
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"eyas-engine-{os.getpid()}"  # noqa: S108
    folder.mkdir(mode=0o700)
    made = PrivateEngine(folder)
    try:
        yield made
    finally:
        if made.process.poll() is not None:
            made.start()  # to end what a killed one left running
        for container in made.client.containers.list(all=True):
            container.remove(force=True)
        made.stop(signal.SIGTERM)
        _unmount(folder)
        shutil.rmtree(folder)


def _unmount(folder: Path) -> None:
    """What a killed engine has left mounted, innermost first."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    places = [line.split()[4] for line in lines if line.split()[4].startswith(f"{folder}/")]
    for place in sorted(places, reverse=True):
        subprocess.run(["umount", "--lazy", place], check=True)
