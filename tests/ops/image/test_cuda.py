"""Which CUDA a library links is read from its ELF header, and compared with the one the base image has."""

from __future__ import annotations

import _ctypes
from pathlib import Path
from typing import Any

import pytest

from ops.image import smoke
from ops.image.elf import OF_CUDA, needed
from ops.image.errors import SmokeError


def test_the_libraries_a_library_needs_are_read_from_it() -> None:
    assert any(name.startswith("libffi.so.") for name in needed(Path(_ctypes.__file__)))


def test_a_file_that_is_no_library_needs_none() -> None:
    assert needed(Path(__file__)) == []


@pytest.mark.parametrize(
    ("name", "major"),
    [("libcudart.so.12", "12"), ("libnvrtc.so.13", "13"), ("libcublasLt.so.12", "12"), ("libcufft.so.11", None)],
)
def test_only_libraries_numbered_as_the_toolkit_tell_its_version(name: str, major: str | None) -> None:
    match = OF_CUDA.fullmatch(name)
    assert (match[1] if match else None) == major


@pytest.fixture
def image(tmp_path: Path) -> Path:
    vllm = tmp_path / "env" / "lib" / "python3.12" / "site-packages" / "vllm"
    vllm.mkdir(parents=True)
    for name in ("_C.abi3.so", "_moe_C.abi3.so", "cumem_allocator.abi3.so"):
        (vllm / name).touch()
    return tmp_path


def check(monkeypatch: pytest.MonkeyPatch, image: Path, accelerator: str, base: str | None, *linked: set[int]) -> str:
    answers = iter(linked)
    monkeypatch.setattr(smoke, "cuda_majors", lambda _: next(answers))
    monkeypatch.delenv("CUDA_VERSION", raising=False)
    if base:
        monkeypatch.setenv("CUDA_VERSION", base)
    record: dict[str, Any] = {"stack": {"accelerator": accelerator}}
    return smoke.check_cuda(record, image)


def test_libraries_that_link_the_bases_cuda_pass(monkeypatch: pytest.MonkeyPatch, image: Path) -> None:
    told = check(monkeypatch, image, "cuda", "12.8.1", {12}, {12}, set())
    assert told == "3 libraries of vLLM, 2 linked to CUDA 12.8.1"


def test_libraries_without_cuda_pass_on_a_cpu(monkeypatch: pytest.MonkeyPatch, image: Path) -> None:
    assert "0 linked to CUDA (none in the base)" in check(monkeypatch, image, "cpu", None, set(), set(), set())


@pytest.mark.parametrize(
    ("accelerator", "base", "linked", "told"),
    [
        ("cuda", "12.8.1", ({12}, {13}, set()), r"_moe_C.abi3.so links CUDA \[13\], the base has \[12\]"),
        ("cuda", "12.8.1", ({12, 13}, {12}, set()), r"_C.abi3.so links CUDA \[12, 13\]"),
        ("cuda", None, ({12}, {12}, set()), "sets no CUDA_VERSION"),
        ("cuda", "12.8.1", (set(), set(), set()), "none of vLLM's 3 libraries links CUDA"),
        ("cpu", None, ({12}, set(), set()), r"links CUDA \[12\], the base has none"),
    ],
    ids=["another major", "two majors", "a base that says nothing", "a vLLM for CPUs", "a vLLM for GPUs"],
)
def test_what_does_not_fit_is_refused(
    accelerator: str,
    base: str | None,
    linked: tuple[set[int], ...],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    image: Path,
) -> None:
    with pytest.raises(SmokeError, match=told):
        check(monkeypatch, image, accelerator, base, *linked)


@pytest.fixture
def training(tmp_path: Path) -> Path:
    """An image with no vLLM."""
    site = tmp_path / "env" / "lib" / "python3.12" / "site-packages"
    (site / "torch" / "lib").mkdir(parents=True)
    for name in (
        "torch/lib/libc10.so",
        "torch/lib/libtorch_cuda.so",
        "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so",
    ):
        (site / name).touch()
    return tmp_path


def test_where_there_is_no_vllm_it_is_torch_and_flash_attn_that_count(
    monkeypatch: pytest.MonkeyPatch, training: Path
) -> None:
    assert check(monkeypatch, training, "cuda", "12.8.1", {12}, set(), {12}) == (
        "3 libraries of torch, 2 linked to CUDA 12.8.1"
    )
    with pytest.raises(SmokeError, match=r"torch's flash_attn_2_cuda\S+ links CUDA \[13\], the base has \[12\]"):
        check(monkeypatch, training, "cuda", "12.8.1", {13}, set(), {12})


def test_on_a_cpu_torchs_libraries_for_cuda_lie_unused(monkeypatch: pytest.MonkeyPatch, training: Path) -> None:
    assert check(monkeypatch, training, "cpu", None).startswith("0 libraries of vLLM, 0 linked")
