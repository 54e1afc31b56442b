"""docker-compose.yml: what the engine is asked for, and what is said when something is not set."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ops.stack.stages import STACK_OF
from tests.containers import running
from tests.containers.composing import BASE, CPU, EXAMPLE, FOLDERS, Project, project, user

STAGES = ("prepare", "extract", "verify")
# The first is the target's own answers; the others make, measure and pack a draft.
DRAFTS = ("regenerate", "train", "estimate", "evaluate", "export")
ON_GPUS = ("regenerate", "extract", "verify", "train", "estimate", "evaluate")
IMAGES = ("EYAS_IMAGE", "EYAS_TRAIN_IMAGE", "EYAS_SERVE_IMAGE")
# Says what it is told to run, and ends as FAIL in its words says: "prepare=41 extract=47".
ECHO = 'echo "ran $0 $*"; for one in $FAIL; do [ "${one%=*}" != "$0" ] || exit "${one#*=}"; done'
GPUS = [{"capabilities": ["gpu"], "driver": "nvidia", "count": -1}]


@pytest.fixture(scope="module")
def echo(engine: Any) -> Iterator[str]:
    with running.stand_in_image(engine, "eyas-test-compose:echo", ECHO) as name:
        yield name


@pytest.fixture
def on_cpu(engine: Any, echo: str, tmp_path: Path) -> Iterator[Project]:
    with project(tmp_path, BASE, CPU, **dict.fromkeys(IMAGES, echo)) as made:
        yield made


@pytest.fixture
def on_gpus(engine: Any, echo: str, tmp_path: Path) -> Iterator[Project]:
    with project(tmp_path, BASE, **dict.fromkeys(IMAGES, echo)) as made:
        yield made


def created(engine: Any, made: Project, service: str) -> dict[str, Any]:
    """The container of a service, as the engine has it."""
    done = made.run("--profile", "*", "create", service)
    assert done.returncode == 0, done.stderr
    which = [f"com.docker.compose.project={made.name}", f"com.docker.compose.service={service}"]
    (found,) = engine.containers.list(all=True, filters={"label": which})
    return found.attrs


@pytest.mark.parametrize("service", [*STAGES, *DRAFTS, "fetch"])
def test_every_container_is_confined(engine: Any, on_cpu: Project, service: str) -> None:
    attributes = created(engine, on_cpu, service)
    host, config = attributes["HostConfig"], attributes["Config"]
    assert config["User"] == "{}:{}".format(*user())
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["Init"] is True
    assert host["IpcMode"] == "private"
    assert host["ShmSize"] == 8 << 30
    assert host["NetworkMode"] == ("bridge" if service == "fetch" else "none")
    assert host["Privileged"] is False
    assert not host["PortBindings"]
    assert not host["DeviceRequests"]
    assert set(host["Tmpfs"]) == {"/tmp", "/cache"}  # noqa: S108 - a mount point
    assert all("exec" in flags.split(",") for flags in host["Tmpfs"].values())
    assert host["RestartPolicy"]["Name"] == "no"
    assert config["StopSignal"] == "SIGINT"
    assert config["Labels"]["io.eyas.stage"] == service


def test_only_results_can_be_written_and_no_folder_is_made(engine: Any, on_cpu: Project, tmp_path: Path) -> None:
    for service in (*STAGES, *DRAFTS):
        mounts = created(engine, on_cpu, service)["HostConfig"]["Mounts"]
        assert {(mount["Target"], mount["Source"], mount.get("ReadOnly", False)) for mount in mounts} == {
            ("/models", str(tmp_path / "models"), True),
            ("/data", str(tmp_path / "data"), True),
            ("/runs", str(tmp_path / "runs"), False),
            ("/hf", str(tmp_path / "hf"), True),
        }
        # The engine makes no missing folder of a mount, only of the older "binds", unless it is told to.
        assert not any(mount.get("BindOptions", {}).get("CreateMountpoint") for mount in mounts)
        assert not created(engine, on_cpu, service)["HostConfig"]["Binds"]


def test_the_stages_differ_in_nothing_but_their_work(on_gpus: Project) -> None:
    services = on_gpus.config()["services"]
    assert set(services) == {*STAGES, *DRAFTS, "fetch"}
    own = {"command", "labels", "depends_on", "deploy"}
    shared = [{key: value for key, value in services[name].items() if key not in own} for name in (*STAGES, *DRAFTS)]
    assert all(one == shared[0] for one in shared)
    first = {"extract": "prepare", "verify": "extract", "train": "extract"}
    first |= dict.fromkeys(("estimate", "evaluate", "export"), "train")
    done = {"condition": "service_completed_successfully", "required": True}
    assert {name: service["depends_on"] for name, service in services.items() if "depends_on" in service} == {
        name: {before: done} for name, before in first.items()
    }


def test_gpus_are_reserved_for_the_stages_that_compute_on_them(on_gpus: Project, on_cpu: Project) -> None:
    devices = {
        name: service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices")
        for name, service in on_gpus.config()["services"].items()
    }
    assert devices == {**dict.fromkeys(ON_GPUS, GPUS), "prepare": None, "export": None, "fetch": None}
    assert not any("deploy" in service for service in on_cpu.config()["services"].values())


def test_the_engine_is_asked_for_all_gpus_and_its_refusal_is_seen(engine: Any, on_gpus: Project) -> None:
    assert created(engine, on_gpus, "extract")["HostConfig"]["DeviceRequests"] == [
        {"Driver": "nvidia", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": None}
    ]
    if any(name.startswith("nvidia") for name in engine.info().get("Runtimes", {})):
        pytest.skip("this engine has GPUs to give")
    done = on_gpus.run("up", "extract")
    assert done.returncode == 1
    assert 'could not select device driver "nvidia" with capabilities: [[gpu]]' in done.stderr


@pytest.mark.parametrize(("devices", "ids"), [('["0", "1"]', ["0", "1"]), ('["GPU-1b2c"]', ["GPU-1b2c"])])
def test_gpus_are_chosen_as_the_guide_says(
    engine: Any, echo: str, tmp_path: Path, devices: str, ids: list[str]
) -> None:
    guide = (BASE.parent / "docs" / "containers.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(services:\n.*?)```", guide, flags=re.DOTALL)
    override = tmp_path / "docker-compose.gpus.yml"
    override.write_text(example.replace('["0", "1"]', devices), encoding="utf-8")
    with project(tmp_path, BASE, override, **dict.fromkeys(IMAGES, echo)) as made:
        for stage in ON_GPUS:
            assert created(engine, made, stage)["HostConfig"]["DeviceRequests"] == [
                {"Driver": "nvidia", "Count": 0, "DeviceIDs": ids, "Capabilities": [["gpu"]], "Options": None}
            ]


def test_the_default_images_are_the_ones_that_are_built_here(engine: Any, tmp_path: Path) -> None:
    stacks = {**STACK_OF, "fetch": "extract"}
    for files, accelerator in (((BASE,), "cuda"), ((BASE, CPU), "cpu")):
        with project(tmp_path, *files) as made:
            for name, service in made.config()["services"].items():
                assert (service["image"], service["pull_policy"]) == (f"eyas-{stacks[name]}:{accelerator}", "never")


def test_a_missing_image_is_named_and_not_pulled(on_cpu: Project) -> None:
    done = on_cpu.run("up", "prepare", EYAS_IMAGE="eyas-extract:never-built")
    assert done.returncode == 1
    assert "No such image: eyas-extract:never-built" in done.stderr


NEEDED = [*FOLDERS, "EYAS_UID", "EYAS_GID", "EYAS_MODEL_PATH", "EYAS_CONVERSATIONS", "EYAS_RUN"]


def test_every_needed_variable_is_in_the_list_below() -> None:
    assert set(re.findall(r"\$\{(\w+):\?", BASE.read_text(encoding="utf-8"))) == set(NEEDED)


def test_the_example_explains_every_variable() -> None:
    used = set(re.findall(r"\$\{(\w+)", BASE.read_text(encoding="utf-8") + CPU.read_text(encoding="utf-8")))
    listed = set(re.findall(r"^(?:# )?([A-Z_]+)=", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert listed == used | {"COMPOSE_FILE", "COMPOSE_PROJECT_NAME"}


@pytest.mark.parametrize("variable", NEEDED)
def test_an_unset_variable_gives_a_sentence_and_makes_nothing(
    engine: Any, echo: str, tmp_path: Path, variable: str
) -> None:
    with project(tmp_path, BASE, CPU, EYAS_IMAGE=echo, **{variable: ""}) as made:
        before = sorted(tmp_path.rglob("*"))
        done = made.run("up", "extract")
        assert done.returncode
        assert len(done.stderr.strip().splitlines()) == 1
        assert f"set {variable} in .env to " in done.stderr
        assert sorted(tmp_path.rglob("*")) == before
        label = f"com.docker.compose.project={made.name}"
        assert engine.containers.list(all=True, filters={"label": label}) == []


@pytest.mark.parametrize("variable", FOLDERS)
def test_a_missing_folder_is_named_and_not_made(engine: Any, echo: str, tmp_path: Path, variable: str) -> None:
    missing = tmp_path / "nowhere"
    with project(tmp_path, BASE, CPU, EYAS_IMAGE=echo, **{variable: str(missing)}) as made:
        done = made.run("up", "extract")
    assert done.returncode
    assert f"bind source path does not exist: {missing}" in done.stderr
    assert not missing.exists()


def test_what_stands_in_env_reaches_the_stages_word_for_word(engine: Any, echo: str, tmp_path: Path) -> None:
    values = {
        "EYAS_MODEL_PATH": "/models/a target",
        "EYAS_RUN": "kimi",
        "EYAS_PREPARE_FLAGS": "--max-seq-len 512",
        "EYAS_EXTRACT_FLAGS": "--layer-ids 2 30 58 60 --tp-size 8",
        "EYAS_VERIFY_FLAGS": "--reference",
        "EYAS_TRAIN_FLAGS": "--lr 1e-3 --nproc 8",
        "EYAS_HELD_OUT_PROMPTS": "other.jsonl",
        "EYAS_HELD_OUT_RUN": "kimi-held-out",
    }
    with project(tmp_path, BASE, CPU, EYAS_IMAGE=echo, **values) as made:
        commands = {name: service["command"] for name, service in made.config()["services"].items()}
    target = ["--model-path", "/models/a target"]
    data = ["--input", "/data/conversations.jsonl"]
    assert commands["prepare"] == ["prepare", *data, *target, "--output-dir", "/runs/kimi", "--max-seq-len", "512"]
    where = ["--prepared-data", "/runs/kimi/tokenized.jsonl", "--output-dir", "/runs/kimi/store"]
    layers = ["--layer-ids", "2", "30", "58", "60", "--tp-size", "8"]
    assert commands["extract"] == ["extract", *target, *where, *layers]
    assert commands["verify"] == ["verify", "/runs/kimi/store", "--reference"]
    assert commands["regenerate"] == [
        *("regenerate", "--input", "/data/prompts.jsonl", *target, "--output-dir", "/runs/kimi/regenerated")
    ]
    assert commands["train"] == [
        *("train", "--store", "/runs/kimi/store", *target, "--output-dir", "/runs/kimi/train"),
        *("--lr", "1e-3", "--nproc", "8"),
    ]
    best = "/runs/kimi/train/best"
    assert commands["estimate"] == [
        *("estimate", "--store", "/runs/kimi-held-out/store", *target, "--draft", best),
        *("--output-dir", "/runs/kimi/estimate"),
    ]
    assert commands["evaluate"] == [
        *("evaluate", *target, "--draft", f"trained={best}", "--draft", "untrained=/runs/kimi/train/untrained"),
        *("--input", "/data/other.jsonl", "--output-dir", "/runs/kimi/evaluation"),
    ]
    assert commands["export"] == [
        *("export", "--draft", best, *target, "--store", "/runs/kimi/store"),
        *("--train-report", "/runs/kimi/train/report.json", "--output-dir", "/runs/kimi/export"),
    ]


def test_prepare_takes_what_regenerate_wrote_where_it_is_told_to(engine: Any, echo: str, tmp_path: Path) -> None:
    answers = "/runs/compose/regenerated/conversations.jsonl"
    with project(tmp_path, BASE, CPU, EYAS_IMAGE=echo, EYAS_PREPARE_INPUT=answers) as made:
        assert made.config()["services"]["prepare"]["command"][:3] == ["prepare", "--input", answers]


@pytest.mark.parametrize(
    ("fail", "code", "ran"),
    [("", 0, ["prepare", "extract"]), ("extract=47", 47, ["prepare", "extract"]), ("prepare=41", 1, ["prepare"])],
)
def test_extract_runs_after_a_prepare_that_succeeded_and_its_code_can_be_had(
    engine: Any, tmp_path: Path, fail: str, code: int, ran: list[str]
) -> None:
    with (
        running.stand_in_image(engine, "eyas-test-compose:fails", f"FAIL='{fail}'; {ECHO}") as image,
        project(tmp_path, BASE, CPU, EYAS_IMAGE=image) as made,
    ):
        done = made.run("up", "--exit-code-from", "extract", "extract")
        assert done.returncode == code, done.stderr
        assert [stage for stage in STAGES if f"ran {stage} " in made.logs(stage)] == ran
        if fail.startswith("prepare"):
            assert 'service "prepare" didn\'t complete successfully: exit 41' in done.stderr


def test_a_token_is_a_file_in_the_container_that_fetches_and_nowhere_else(
    engine: Any, echo: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("hf_not_a_real_one_123", encoding="utf-8")
    with project(tmp_path, BASE, CPU, EYAS_IMAGE=echo, EYAS_HF_TOKEN_FILE=str(token), EYAS_HUB_MODEL="a/b") as made:
        fetching = created(engine, made, "fetch")
        others = [created(engine, made, stage) for stage in STAGES]
    assert "hf_not_a_real_one_123" not in json.dumps([fetching, *others])
    assert ("/run/secrets/hf_token", str(token)) in {(one["Destination"], one["Source"]) for one in fetching["Mounts"]}
    assert not any("hf_token" in json.dumps(one) for one in others)
    assert fetching["Config"]["Cmd"] == ["download", "a/b"]
    assert {"HF_HUB_OFFLINE=0", "HF_TOKEN_PATH=/run/secrets/hf_token"} <= set(fetching["Config"]["Env"])
