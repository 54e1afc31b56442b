"""--gpus: the JSON that the engine gets, in full, and what is refused before."""

from __future__ import annotations

import pytest

from ops.container.errors import GpuError, RuntimeFlagError
from ops.container.gpus import Gpus, parse
from ops.container.refusal import explain

GPU = "GPU-3f2b8c1e-9a7d-4e5f-8b6a-1c2d3e4f5a6b"
MIG = "MIG-6cc98505-678d-5f4b-9b75-3a0f1e2d4c5b"
OLD_MIG = f"MIG-{GPU}/1/0"


# As the engine's API reference has it; test_run_engine holds the same against what the docker command sends.
@pytest.mark.parametrize(
    ("value", "request_json"),
    [
        ("all", {"Driver": "", "Count": -1, "DeviceIDs": [], "Capabilities": [["gpu"]], "Options": {}}),
        ("0", {"Driver": "", "Count": 0, "DeviceIDs": ["0"], "Capabilities": [["gpu"]], "Options": {}}),
        ("0,1", {"Driver": "", "Count": 0, "DeviceIDs": ["0", "1"], "Capabilities": [["gpu"]], "Options": {}}),
        (GPU, {"Driver": "", "Count": 0, "DeviceIDs": [GPU], "Capabilities": [["gpu"]], "Options": {}}),
        (
            f"{MIG},{OLD_MIG}",
            {"Driver": "", "Count": 0, "DeviceIDs": [MIG, OLD_MIG], "Capabilities": [["gpu"]], "Options": {}},
        ),
        (
            "0,1,2,3,4,5,6,7",
            {"Driver": "", "Count": 0, "DeviceIDs": list("01234567"), "Capabilities": [["gpu"]], "Options": {}},
        ),
    ],
)
def test_the_engine_is_asked_for_exactly_these_gpus(value: str, request_json: dict[str, object]) -> None:
    gpus = parse(value)
    assert [dict(request) for request in gpus.requests()] == [request_json]
    assert gpus.accelerator == "cuda"


def test_none_asks_for_nothing_and_takes_the_cpu_image() -> None:
    assert parse("none").requests() == []
    assert parse("none").accelerator == "cpu"


@pytest.mark.parametrize("value", ["", "-1", "some", "0;1", "0,,1", "GPU-1", "all,0", "none,1", "0,0", "1.5", "cuda:0"])
def test_what_names_no_gpu_is_a_wrong_command_line(value: str) -> None:
    with pytest.raises(RuntimeFlagError) as caught:
        parse(value)
    assert caught.value.exit_code == 2


PRESENT = ("0", GPU, "1", "GPU-00000000-0000-0000-0000-000000000001", MIG)


@pytest.mark.parametrize("value", ["all", "0", "0,1", GPU, MIG])
def test_gpus_that_are_there_pass(value: str) -> None:
    parse(value).check("570.26", PRESENT)


@pytest.mark.parametrize("value", ["2", "0,7", GPU.replace("3f2b", "ffff"), MIG.replace("6cc9", "ffff")])
def test_a_gpu_that_is_not_there_is_named(value: str) -> None:
    with pytest.raises(GpuError, match=value.rpartition(",")[2]) as caught:
        parse(value).check("570.26", PRESENT)
    assert caught.value.exit_code == 54


@pytest.mark.parametrize("driver", ["565.57.01", "does not answer"])
def test_a_driver_too_old_for_cuda_12_8_is_refused(driver: str) -> None:
    with pytest.raises(GpuError, match=r"570\.26 or newer"):
        parse("all").check(driver, PRESENT)
    Gpus().check(driver, ())  # without GPUs it does not matter


def test_without_nvidia_smi_the_engine_decides() -> None:
    parse("3").check("", ())


@pytest.mark.parametrize(
    ("said", "driver", "sentence"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', "", "no NVIDIA GPU"),
        (
            'could not select device driver "" with capabilities: [[gpu]]',
            "580.65.06",
            "install nvidia-container-toolkit",
        ),
        (
            "failed to create shim task: OCI runtime create failed: nvidia-container-cli: requirement error: "
            "unsatisfied condition: cuda>=12.8, please update your driver to a newer version",
            "550.54.15",
            "driver is too old for CUDA 12.8",
        ),
        (
            "OCI runtime create failed: nvidia-container-cli: device error: 9: unknown device",
            "580.65.06",
            "does not exist",
        ),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded", "580.65.06", "toolkit failed"),
    ],
)
def test_what_engines_say_about_gpus_becomes_a_sentence(said: str, driver: str, sentence: str) -> None:
    error = explain(said, driver=driver)
    assert error.exit_code == 54
    assert sentence in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("said", "code", "sentence"),
    [
        ('invalid mount config for type "bind": bind source path does not exist: /a/b', 56, "cannot mount /a/b"),
        ("mkdir /var/lib/docker/x: no space left on device", 56, "disk is full"),
        ("No such image: sha256:0000", 52, "image was removed"),
        ('OCI runtime create failed: exec: "bash": not found', 56, "could not start the container"),
    ],
)
def test_other_refusals_keep_what_the_engine_said(said: str, code: int, sentence: str) -> None:
    error = explain(said, driver="")
    assert (error.exit_code, sentence in str(error)) == (code, True)
