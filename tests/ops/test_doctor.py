"""What doctor says of machines that are not at hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ops import doctor, probes
from ops.doctor import Check, State, driver_is_new_enough, judge
from ops.errors import DoctorError
from ops.probes import GIB, Machine

GOOD = Machine(
    system="Linux x86_64",
    python=(3, 12),
    has_venv=True,
    cache=Path("/cache"),
    disk_free=100 * GIB,
    memory=16 * GIB,
    cores=8,
    cpu_flags=frozenset({"avx2", "avx512f"}),
    shm=8 * GIB,
    docker="",
    docker_problem="no engine answers",
    driver="",
    container_runtime=False,
    stacks=(),
)


def line(machine: Machine, what: str) -> Check:
    return next(check for check in judge(machine) if check.what == what)


def test_a_machine_with_no_docker_and_no_gpu_can_extract() -> None:
    assert all(check.state is not State.MISSING for check in judge(GOOD) if check.required)
    assert line(GOOD, "NVIDIA driver").state is State.NOT_NEEDED


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"system": "Darwin arm64"}, "system"),
        ({"python": (3, 9)}, "python"),
        ({"python": (3, 14)}, "python"),
        ({"has_venv": False}, "venv"),
        ({"disk_free": 3 * GIB}, "disk free"),
        ({"memory": 2 * GIB}, "memory"),
        ({"cpu_flags": frozenset({"sse4_2"})}, "CPU"),
    ],
)
def test_what_the_main_job_lacks_is_missing_with_a_remedy(change: dict[str, object], what: str) -> None:
    check = line(dataclasses.replace(GOOD, **change), what)  # type: ignore[arg-type]
    assert check.state is State.MISSING
    assert check.required
    assert check.remedy
    assert line(GOOD, what).state is State.OK


def test_an_installed_stack_needs_no_more_room() -> None:
    assert line(dataclasses.replace(GOOD, disk_free=3 * GIB, stacks=("extract-cpu-1",)), "disk free").state is State.OK
    assert (
        line(dataclasses.replace(GOOD, disk_free=3 * GIB, stacks=("train-cpu-1",)), "disk free").state is not State.OK
    )


# NVIDIA's table: CUDA 12.8 GA needs 570.26; 565 came with 12.7, 580 with 13.0.
@pytest.mark.parametrize(
    ("driver", "enough"),
    [("570.26", True), ("570.124.06", True), ("580.65.06", True), ("565.57.01", False), ("does not answer", False)],
)
def test_a_driver_is_judged_by_cuda_12_8(driver: str, enough: bool) -> None:
    assert driver_is_new_enough(driver) is enough
    wanted = State.OK if enough else State.MISSING
    assert line(dataclasses.replace(GOOD, driver=driver), "NVIDIA driver").state is wanted


def test_the_container_runtime_is_wanted_only_with_gpu_and_docker() -> None:
    what = "NVIDIA container runtime"
    gpu = dataclasses.replace(GOOD, driver="580.65.06")
    assert line(GOOD, what).state is State.NOT_NEEDED
    assert line(gpu, what).state is State.NOT_NEEDED
    assert line(dataclasses.replace(gpu, docker="28.0"), what).state is State.MISSING
    assert line(dataclasses.replace(gpu, docker="28.0", container_runtime=True), what).state is State.OK


def test_an_engine_that_does_not_answer_has_a_remedy_of_its_own() -> None:
    assert "usermod -aG docker" in line(dataclasses.replace(GOOD, docker_problem="no permission"), "docker").remedy
    assert line(GOOD, "docker").remedy.endswith("start it")


def test_an_image_older_than_the_checkout_is_told() -> None:
    assert line(GOOD, "image").state is State.NOT_NEEDED
    images = (("eyas-extract:cpu", True), ("eyas-extract:cuda", False))
    found = [check for check in judge(dataclasses.replace(GOOD, docker="28.0", images=images)) if check.what == "image"]
    assert [(check.found, check.state) for check in found] == [
        ("eyas-extract:cpu", State.OK),
        ("eyas-extract:cuda", State.MISSING),
    ]
    assert found[1].remedy.endswith("./eyas build")
    train = dataclasses.replace(GOOD, docker="28.0", images=(("eyas-train:cpu", False),))
    assert line(train, "image").remedy.endswith("./eyas build --stack train")


def stacks(machine: Machine) -> dict[str, tuple[State, str]]:
    lines = [check for check in judge(machine) if check.what == "stack"]
    return {check.found: (check.state, check.remedy) for check in lines}


def test_every_stack_has_a_line_that_says_what_installs_it() -> None:
    told = stacks(dataclasses.replace(GOOD, stacks=("train-cpu-0123",)))
    assert told["train-cpu-0123"] == (State.OK, "")
    assert told["extract not installed"] == (State.NOT_NEEDED, "the first ./eyas extract installs it, about 8 GiB")
    assert told["serve not installed"] == (State.NOT_NEEDED, "the first ./eyas evaluate installs it, about 9 GiB")
    assert len(told) == 3


def test_a_stack_that_another_python_or_disk_would_need_is_missing_and_extract_can_run_all_the_same() -> None:
    told = stacks(dataclasses.replace(GOOD, python=(3, 10)))
    assert told["extract not installed"][0] is State.NOT_NEEDED
    for name in ("train", "serve"):
        state, remedy = told[f"{name} not installed"]
        assert state is State.MISSING
        assert set("it runs on Python >=3.11,<3.14: install one") == set(remedy)  # a specifier has no order
    full = dataclasses.replace(GOOD, disk_free=10 * GIB, stacks=("extract-cpu-0123",))
    assert stacks(full)["serve not installed"] == (State.MISSING, "free 11 GiB at /cache for it")
    assert all(check.state is not State.MISSING for check in judge(full) if check.required)


def test_the_report_fails_only_when_the_main_job_cannot_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probes, "look", lambda: GOOD)
    doctor.report()
    assert capsys.readouterr().out.endswith("./eyas extract can run on this machine\n")
    monkeypatch.setattr(probes, "look", lambda: dataclasses.replace(GOOD, disk_free=0))
    with pytest.raises(DoctorError, match="disk free is 0 GiB") as caught:
        doctor.report()
    assert caught.value.exit_code == 30


def test_this_machine_can_be_looked_at() -> None:
    machine = probes.look()
    assert machine.cores > 0
    assert machine.memory > 0
    assert bool(machine.docker) != bool(machine.docker_problem)


def test_an_nvidia_smi_that_fails_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexit 9\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probes.look().driver == "does not answer"
    tool.write_text("#!/bin/sh\necho 570.124.06\necho 570.124.06\n", encoding="utf-8")
    assert probes.look().driver == "570.124.06"
