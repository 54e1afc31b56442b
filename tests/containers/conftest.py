"""The engine, a base image and the CPU image, made once for all tests of containers.

Without an engine these tests are skipped and say so; with EYAS_CI=1 that is a failure.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import docker
import pytest

from ops.container.engine import connect, docker_cli
from ops.errors import UserError
from ops.paths import CHECKOUT
from ops.suite import in_ci
from tests.containers.base import ensure_base


@pytest.fixture(scope="session")
def engine() -> docker.DockerClient:
    """A client of the real engine."""
    try:
        docker_cli()
        return connect()
    except UserError as error:
        if in_ci():
            pytest.fail(f"these tests need a Docker engine: {error}")
        pytest.skip(f"no Docker engine: {error}")


@pytest.fixture(scope="session")
def base_image(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Name of a Debian image with Python and a compiler."""
    return ensure_base(engine, docker_cli(), tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="session")
def cpu_image(engine: docker.DockerClient, base_image: str) -> str:
    """Name of the real CPU image of this checkout; what is built already is not built again."""
    run_eyas("build", "--accelerator", "cpu", "--base-image", base_image, "--network", "host")
    return "eyas-extract:cpu"


def run_eyas(*arguments: str, folder: Path = CHECKOUT) -> str:
    """Run a command of `./eyas` that must end well; returns what it printed on standard output.

    Args:
        arguments: the command and its flags.
        folder: a checkout.
    """
    done = subprocess.run([str(folder / "eyas"), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout[-3000:] + done.stderr[-6000:])
        pytest.fail(f"./eyas {' '.join(arguments)} ended with {done.returncode}")
    return done.stdout
