"""The engine's process: how it fails, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.errors import EngineError
from pipeline.evaluate import engine
from pipeline.evaluate.engine import environment, serve
from pipeline.evaluate.prompts import Prompt
from tests.serve.serving import SERVING

CHECKOUT = Path(__file__).resolve().parents[2]
STAGE = """
import sys
from pathlib import Path
from pipeline.evaluate import engine
from tests.serve.serving import SERVING
engine._LEAVE = 0.5
engine.MODULE = "tests.serve.endless"
try:
    engine.serve(SERVING, None, [], Path(sys.argv[1]))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture(autouse=True)
def found_from_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))


def test_an_engine_that_crashes_is_one_line_with_its_own_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine, "MODULE", "tests.serve.crashing")
    with pytest.raises(EngineError) as failed:
        serve(SERVING, Path("draft"), [Prompt("a", [1])], tmp_path / "logs" / "one.log")
    assert "draft's engine ended with code 3 [RuntimeError: the weights are of no shape]" in str(failed.value)
    assert str(tmp_path / "logs" / "one.log") in str(failed.value)
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process(number: int, tmp_path: Path) -> None:
    stage, pids = start_stage(tmp_path)
    stage.send_signal(number)
    assert stage.wait(60) == 130
    assert until(lambda: not any(map(alive, pids)))


def test_a_killed_stage_takes_its_engine_along(tmp_path: Path) -> None:
    """The real child asks the kernel for that before all else."""
    script = "import sys, time; from pipeline.evaluate.serve import _end_with; _end_with(int(sys.argv[1])); "
    script += "print('ready', flush=True); time.sleep(600)"
    parent = (
        "import os, subprocess, sys, time; "
        f"child = subprocess.Popen([sys.executable, '-c', {script!r}, str(os.getpid())], stdout=subprocess.PIPE); "
        "child.stdout.readline(); print(child.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as stage:
        assert stage.stdout
        child = int(stage.stdout.readline())
        assert alive(child)
        stage.kill()
    assert until(lambda: not alive(child))


def test_what_the_user_has_set_stays_and_one_process_takes_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "7")
    variables = environment(SERVING)
    assert variables["VLLM_CPU_KVCACHE_SPACE"] == "7"
    assert variables["OMP_NUM_THREADS"] == str(len(os.sched_getaffinity(0)))
    assert variables["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


def start_stage(folder: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A stage whose engine never ends; the numbers of the engine's two processes."""
    log = folder / "engine.log"
    stage = subprocess.Popen([sys.executable, "-c", STAGE, str(log)])
    assert until(lambda: stage.poll() is not None or (log.exists() and log.read_text().endswith("\n")))
    return stage, [int(number) for number in log.read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def until(true: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
