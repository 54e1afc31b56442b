"""What nvidia-smi prints, as NVIDIA's manual shows it, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops import probes

LIST = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-3f2b8c1e-9a7d-4e5f-8b6a-1c2d3e4f5a6b)
  MIG 1g.10gb     Device  0: (UUID: MIG-6cc98505-678d-5f4b-9b75-3a0f1e2d4c5b)
  MIG 1g.10gb     Device  1: (UUID: MIG-GPU-3f2b8c1e-9a7d-4e5f-8b6a-1c2d3e4f5a6b/8/0)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000001)
"""


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is found as nvidia-smi."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    tool = tmp_path / "nvidia-smi"
    tool.touch(mode=0o755)
    return tool


def test_gpus_and_mig_devices_are_known_by_index_and_uuid(nvidia_smi: Path) -> None:
    nvidia_smi.write_text(f"#!/bin/sh\n[ $1 = -L ] && cat <<'END'\n{LIST}END\n", encoding="utf-8")
    assert probes.gpus() == (
        "0",
        "GPU-3f2b8c1e-9a7d-4e5f-8b6a-1c2d3e4f5a6b",
        "MIG-6cc98505-678d-5f4b-9b75-3a0f1e2d4c5b",
        "MIG-GPU-3f2b8c1e-9a7d-4e5f-8b6a-1c2d3e4f5a6b/8/0",
        "1",
        "GPU-00000000-0000-0000-0000-000000000001",
    )


@pytest.mark.parametrize("script", ["echo 'No devices found.'", "echo 'GPU 0: x (UUID: GPU-1)'; exit 9"])
def test_a_machine_whose_gpus_do_not_answer_has_none(script: str, nvidia_smi: Path) -> None:
    nvidia_smi.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    assert probes.gpus() == ()


def test_a_machine_without_the_tool_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probes.gpus() == ()
    assert probes.driver() == ""
