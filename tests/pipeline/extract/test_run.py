"""The stage as a user runs it, on a tiny target through the real engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from pipeline.store.reader import StoreReader
from tests.engines import random_samples
from tests.pipeline.extract.conftest import LENGTHS, manifest_of, write_samples

BY_REFERENCE = ("--engine", "reference")
SMALL_UNITS = ("--batch-size", 3, "--layer-ids", 1, 2, 5)


@pytest.fixture
def flags(llama, prepared):
    return "--model-path", llama, "--prepared-data", prepared


@pytest.fixture(scope="module")
def whole(stage, llama, tmp_path_factory):
    """The store of a run that nothing interrupted, by dtype; made when first asked for."""
    folder = tmp_path_factory.mktemp("whole")
    prepared = write_samples(folder / "tokenized.jsonl", random_samples(LENGTHS))
    flags = ("--model-path", llama, "--prepared-data", prepared, *SMALL_UNITS)

    def store(dtype: str) -> Path:
        if not (folder / dtype).exists():
            code, _, errors = stage("extract", *flags, "--dtype", dtype, "--output-dir", folder / dtype)
            assert code == 0, errors
        return folder / dtype

    return store


@pytest.fixture(scope="module")
def by_reference(stage, llama, tmp_path_factory):
    """A store of the engine that starts fastest, for what is the same with each."""
    folder = tmp_path_factory.mktemp("by-reference")
    prepared = write_samples(folder / "tokenized.jsonl", random_samples(LENGTHS))
    flags = ("--model-path", llama, "--prepared-data", prepared, *SMALL_UNITS, *BY_REFERENCE)
    code, _, errors = stage("extract", *flags, "--output-dir", folder / "store")
    assert code == 0, errors
    return folder / "store"


def test_a_finished_store_has_every_row_and_an_account_that_closes(stage, flags, prepared, tmp_path):
    broken = [[], [200], [-1], random_samples([2049])[0]]
    samples = [*random_samples(LENGTHS), *broken]
    write_samples(prepared, samples)
    store = tmp_path / "store"
    code, output, errors = stage("extract", *flags, *SMALL_UNITS, "--output-dir", store)
    assert code == 0, errors
    manifest = manifest_of(store)
    counts = manifest["counts"]
    assert (counts["input"], counts["captured"], counts["rejected"]) == (len(samples), len(LENGTHS), len(broken))
    assert counts["rows"] == sum(LENGTHS)
    assert (manifest["dtype"], manifest["hidden_size"]) == ("float32", 128)
    assert manifest["layer_ids"] == {"output": [1, 2, 5], "input": [2, 3, 6]}
    assert manifest["final_norm_applied"] is False
    assert manifest["store_digest"] in output.replace("\n", "").replace("│", "").replace(" ", "")
    rejected = [json.loads(line) for line in (store / "rejected.jsonl").read_text().splitlines()]
    assert [entry["id"] for entry in rejected] == ["s12", "s13", "s14", "s15"]
    reader = StoreReader(store)
    for number, ids in enumerate(samples[: len(LENGTHS)]):
        assert reader.sample(f"s{number}").input_ids.tolist() == ids
    assert "\x1b" not in errors, "a progress line where there is no terminal"


def test_a_second_run_says_that_all_is_done_and_starts_no_engine(stage, flags, tmp_path, whole):
    store = shutil.copytree(whole("float32"), tmp_path / "store")
    before = {file: file.read_bytes() for file in (store / "shards").iterdir()}
    log = (store / "logs" / "engine.log").stat().st_size
    code, output, _ = stage("extract", *flags, *SMALL_UNITS, "--output-dir", store)
    assert code == 0
    assert "were done already" in output
    assert {file: file.read_bytes() for file in (store / "shards").iterdir()} == before
    assert (store / "logs" / "engine.log").stat().st_size == log


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_ctrl_c_leaves_a_store_that_a_second_run_completes(start_stage, stage, flags, tmp_path, whole, dtype):
    store = tmp_path / "store"
    command = ("extract", *flags, *SMALL_UNITS, "--dtype", dtype, "--output-dir", store)
    process = start_stage(*command)
    wait_for_unit(store, process)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "the same command goes on there" in " ".join(errors.split())
    assert left_after_10_s(process.pid) == []
    code, _, errors = stage(*command)
    assert code == 0, errors
    assert manifest_of(store)["store_digest"] == manifest_of(whole(dtype))["store_digest"]


def test_whichever_unit_runs_first_the_store_is_the_same(stage, flags, tmp_path, whole):
    store = shutil.copytree(whole("float32"), tmp_path / "store")
    command = ("extract", *flags, *SMALL_UNITS, "--dtype", "float32", "--output-dir", store)
    # Units 0 and 2 are lost and done again, after the others and in another process.
    for unit in ("000000", "000002"):
        for file in (store / "shards").glob(f"{unit}.*"):
            file.unlink()
    code, _, errors = stage(*command)
    assert code == 0, errors
    assert manifest_of(store)["store_digest"] == manifest_of(whole("float32"))["store_digest"]


@pytest.mark.parametrize("other", [("--batch-size", 1), ("--token-budget", 300), ("--tp-size", 2)], ids=str)
def test_another_batching_gives_the_same_states_within_1e_5(stage, flags, tmp_path, whole, other):
    batching = (*SMALL_UNITS, *other)  # the last one given counts
    code, _, errors = stage("extract", *flags, "--dtype", "float32", "--output-dir", tmp_path / "store", *batching)
    assert code == 0, errors
    one, two = StoreReader(whole("float32")), StoreReader(tmp_path / "store")
    assert set(one.ids()) == set(two.ids())
    for name in one.ids():
        states, again = (torch.as_tensor(reader.sample(name).hidden_states) for reader in (one, two))
        assert (states - again).norm() <= 1e-5 * states.norm()


def test_a_killed_worker_is_started_again_and_the_store_is_the_same(start_stage, flags, tmp_path, whole):
    store = tmp_path / "store"
    command = ("extract", *flags, *SMALL_UNITS, "--dtype", "float32", "--output-dir", store)
    process = start_stage(*command)
    wait_for_unit(store, process)
    for pid in members_of_group(process.pid):
        if pid != process.pid and b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert '"event": "engine started again"' in (store / "logs" / "events.jsonl").read_text()
    assert manifest_of(store)["store_digest"] == manifest_of(whole("float32"))["store_digest"]


def flip(file: Path, at: float) -> None:
    """One bit, at a share of the file's length."""
    content = bytearray(file.read_bytes())
    content[int(at * (len(content) - 1))] ^= 1
    file.write_bytes(content)


def test_repair_extracts_what_is_damaged_again_and_leaves_all_else_alone(stage, flags, tmp_path, by_reference):
    store = shutil.copytree(by_reference, tmp_path / "store")
    command = ("extract", *flags, *SMALL_UNITS, *BY_REFERENCE, "--output-dir", store)
    files = [store / "manifest.json", store / "rejected.jsonl", *(store / "shards").iterdir()]
    before = {file.relative_to(store): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}
    assert len(before) >= 2 + 2 * 4
    for name in ("shards/000001.safetensors", "shards/000002.json", "manifest.json"):
        flip(store / name, 0.7)
    with (store / "rejected.jsonl").open("w") as file:
        file.write('{"id": "nobody", "line": 1, "reason": "none"}\n')
    assert stage("verify", store)[0] == 45
    code, _, errors = stage(*command)
    assert (code, errors.count("\n")) == (45, 1), "a damaged manifest is not written over without being asked"
    code, _, errors = stage(*command, "--repair")
    assert code == 0, errors
    assert stage("verify", store)[0] == 0
    for name, (content, time_written) in before.items():
        if name.stem == "manifest":
            told = [json.loads(text) | {"info": None, "seal": None} for text in (content, (store / name).read_bytes())]
            assert told[0] == told[1]
        else:
            assert (store / name).read_bytes() == content, name
        untouched = (store / name).stat().st_mtime_ns == time_written
        done_again = name.stem in {"000001", "000002", "manifest", "rejected"}
        assert untouched != done_again, name


def test_recheck_finds_the_unit_whose_content_changed_where_sizes_say_nothing(stage, flags, tmp_path, by_reference):
    store = shutil.copytree(by_reference, tmp_path / "store")
    command = ("extract", *flags, *SMALL_UNITS, *BY_REFERENCE, "--output-dir", store)
    flip(store / "shards/000001.safetensors", 0.7)
    assert "were done already" in stage(*command)[1]
    assert stage("verify", store)[0] == 45
    code, _, errors = stage(*command, "--recheck")
    assert code == 0, errors
    assert "3 of 4 units are done" in " ".join(errors.split())
    assert stage("verify", store)[0] == 0


def test_a_target_that_cannot_be_loaded_names_its_log(stage, flags, tmp_path, llama):
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in llama.iterdir():
        content = file.read_bytes()
        (broken / file.name).write_bytes(content[:1000] if file.suffix == ".safetensors" else content)
    code, _, errors = stage("extract", "--model-path", broken, *flags[2:], "--output-dir", tmp_path / "store")
    assert code == 47
    assert "Traceback" not in errors
    assert str(tmp_path / "store" / "logs" / "engine.log") in errors


def wait_for_unit(store: Path, process: subprocess.Popen[str]) -> None:
    """Return when the first unit is committed."""
    events = store / "logs" / "events.jsonl"
    for _ in range(6000):
        if events.exists() and '"event": "unit"' in events.read_text():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("no unit within two minutes")


def left_after_10_s(group: int) -> list[int]:
    """Processes of a group that are still there; multiprocessing's resource tracker ends just after its parent."""
    for _ in range(200):
        if not members_of_group(group):
            return []
        time.sleep(0.05)
    return members_of_group(group)


def members_of_group(group: int) -> list[int]:
    """Processes of a process group that are not zombies."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_group) == group and state != "Z":
            members.append(int(stat.parent.name))
    return members
