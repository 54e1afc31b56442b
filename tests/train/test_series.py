"""What each patch of patches/speculators-0.9.0 mends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from speculators.train.trainer import _StepTimer

JOINED = """
import torch, torch.distributed as dist
from speculators.train.distributed import get_rank, maybe_setup_distributed, maybe_destroy_distributed
maybe_setup_distributed()
device = f"cuda:{get_rank()}" if torch.cuda.is_available() else "cpu"
number = torch.tensor(10.0 ** get_rank(), device=device)
dist.all_reduce(number)
assert number == 11, number
maybe_destroy_distributed()
"""


def test_a_step_is_timed_without_an_accelerator():
    timer = _StepTimer(enabled=True)
    for mark in ("start", "queue", "pre_h2d", "fetch", "fwd", "pre_clip", "bwd", "opt"):
        timer.mark(mark)
    assert timer.profile(num_tokens=5)["step_ms"] > 0


def test_a_draft_trains_on_the_cpu(train, tmp_path: Path):
    assert (train(tmp_path, epochs=1) / "best" / "model.safetensors").exists()


def test_training_draws_no_bar_of_its_own(train, tmp_path: Path, capfd):
    train(tmp_path, epochs=1)
    told = capfd.readouterr()
    assert "Epoch" not in told.out + told.err


def test_processes_form_a_group_on_the_cpu(tmp_path: Path):
    (tmp_path / "joined.py").write_text(JOINED)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(tmp_path / "joined.py")]
    done = subprocess.run([sys.executable, *torchrun], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
