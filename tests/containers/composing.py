"""Helpers of the tests of docker-compose.yml: a .env made from the example, and the docker command that reads it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.linters import compose_cli
from ops.paths import CHECKOUT

BASE = CHECKOUT / "docker-compose.yml"
CPU = CHECKOUT / "docker-compose.cpu.yml"
EXAMPLE = CHECKOUT / ".env.example"
FOLDERS = {"EYAS_MODELS": "models", "EYAS_DATA": "data", "EYAS_RUNS": "runs", "EYAS_HF": "hf"}
# Against hangs only.
PATIENCE = 600


def user() -> tuple[int, int]:
    """Whom containers run as: who runs the tests; for root somebody else, who has no passwd entry."""
    return (os.getuid(), os.getgid()) if os.getuid() else (54321, 54322)


@dataclass(frozen=True)
class Project:
    """A compose project of one test."""

    name: str
    env: Path
    files: tuple[Path, ...]

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `docker compose` as a user would, with `variables` exported in the shell."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("EYAS_", "COMPOSE_"))}
        flags = [part for file in self.files for part in ("-f", str(file))]
        return subprocess.run(
            [*compose_cli(), "compose", "-p", self.name, "--env-file", str(self.env), *flags, *arguments],
            env=clean | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )

    def config(self) -> dict[str, Any]:
        """What compose makes of the files, all profiles included."""
        done = self.run("--profile", "*", "config", "--format", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def logs(self, service: str) -> str:
        """What a service's last run printed."""
        return self.run("logs", "--no-color", "--no-log-prefix", service).stdout


@contextmanager
def project(folder: Path, *files: Path, **values: str) -> Iterator[Project]:
    """A project with `.env.example` filled in, gone in the end.

    Args:
        folder: of the test; has the folders that are mounted.
        files: of compose.
        values: variables with other values than in the example and than this function's own.
    """
    uid, gid = user()
    filled = {"EYAS_UID": str(uid), "EYAS_GID": str(gid), "EYAS_MODEL_PATH": "/models/target"}
    for variable, name in FOLDERS.items():
        filled[variable] = str(folder / name)
        (folder / name).mkdir(exist_ok=True)
        os.chown(folder / name, uid, gid)
    env = folder / "env"
    env.write_text(fill_in(EXAMPLE.read_text(encoding="utf-8"), filled | values), encoding="utf-8")
    made = Project(f"eyas-test-{os.getpid()}-{abs(hash(folder)) % 10**8}", env, files)
    try:
        yield made
    finally:
        made.run("--profile", "*", "down", "--volumes", "--timeout", "0")


def fill_in(text: str, values: dict[str, str]) -> str:
    """A .env with values changed; a variable that the example only mentions is added."""
    for name, value in values.items():
        text, count = re.subn(rf"^{name}=.*$", f"{name}={value}", text, flags=re.MULTILINE)
        text += "" if count else f"{name}={value}\n"
    return text
