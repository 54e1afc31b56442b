"""What speculators' trainer must do on a machine without an accelerator: the tests that the series' patches name."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from speculators.losses import resolve_loss_config
from speculators.train import distributed
from speculators.train.trainer import Trainer, TrainerConfig, _StepTimer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

from tests.train.tiny_drafts import VOCAB, make_draft, make_target

pytestmark = pytest.mark.skipif(torch.accelerator.is_available(), reason="about machines without an accelerator")


def test_a_step_is_timed_without_an_accelerator() -> None:
    timer = _StepTimer(enabled=True)
    for mark in ("start", "queue", "pre_h2d", "fetch", "fwd", "pre_clip", "bwd", "opt"):
        timer.mark(mark)
    profile = timer.profile(num_tokens=8)
    assert profile is not None
    assert profile["step_ms"] >= profile["fwd_ms"] >= 0
    assert timer.now() is not None


def batches(hidden: int, layers: int, count: int) -> list[dict[str, object]]:
    generator = torch.Generator().manual_seed(0)
    return [
        {
            "hidden_states": torch.randn(1, 8, layers * hidden, generator=generator),
            "verifier_last_hidden_states": torch.randn(1, 8, hidden, generator=generator),
            "input_ids": torch.randint(0, VOCAB, (1, 8), generator=generator),
            "loss_mask": torch.ones(1, 8, dtype=torch.bool),
            "position_ids": torch.arange(1, 9)[None],
            "document_ids": torch.zeros(1, 8, dtype=torch.long),
            "error_records": 0,
        }
        for _ in range(count)
    ]


def trainer_of(kind: type[Trainer], folder: Path) -> Trainer:
    make_target(folder / "target")
    draft = make_draft(folder / "draft", folder / "target")
    data = batches(draft.hidden_size, draft.fc.in_features // draft.hidden_size, 2)
    config = TrainerConfig(
        lr=1e-3,
        num_epochs=1,
        save_path=str(folder / "checkpoints"),
        train_call_kwargs={"ttt_steps": 2, "loss_config": resolve_loss_config("kl_div", "eager")},
        scheduler_type="none",
        hidden_states_dtype=torch.float32,
        log_freq=100,
    )
    return kind(draft, config, DataLoader(data, batch_size=None))  # type: ignore[arg-type] - a list serves


def test_a_draft_trains_on_the_cpu(tmp_path: Path) -> None:
    trainer = trainer_of(Trainer, tmp_path)
    before = trainer.model.fc.weight.detach().clone()
    trainer.train_epoch(0)
    after = trainer.model.fc.weight
    assert trainer.global_step == 2
    assert after.device.type == "cpu"
    assert torch.isfinite(after).all()
    assert not torch.equal(after, before)


class Quiet(Trainer):
    """Shows progress in another way."""

    def _with_bar(self, loader: DataLoader[object], epoch: int) -> DataLoader[object]:
        return loader


def test_training_draws_no_bar_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trainer_of(Quiet, tmp_path).train_epoch(0)
    told = capfd.readouterr()
    assert "Epoch 0" not in told.out + told.err


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The variables that torchrun sets, for a group of one on a free port of loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    names = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": port}
    for name, value in (names | {"MASTER_ADDR": "127.0.0.1"}).items():
        monkeypatch.setenv(name, str(value))
    yield
    if dist.is_initialized():
        distributed.maybe_destroy_distributed()


@pytest.mark.usefixtures("one_process")
def test_processes_form_a_group_on_the_cpu() -> None:
    assert os.environ["WORLD_SIZE"] == "1"
    distributed.maybe_setup_distributed()
    assert dist.is_initialized()
    assert dist.get_backend() == "gloo"
    mine = torch.tensor([3.0])
    dist.all_reduce(mine)
    assert mine.item() == 3


class Searches(TorchDispatchMode):
    """Counts searches for the likeliest token."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, call: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:  # type: ignore[override, type-arg]
        if (name := str(call)).startswith(("aten.argmax", "aten.max.dim")):
            self.found.append(name)
        return call(*args, **kwargs or {})  # type: ignore[operator]


def test_likeliest_tokens_are_looked_for_once(tmp_path: Path) -> None:
    make_target(tmp_path / "target")
    draft = make_draft(tmp_path / "draft", tmp_path / "target")
    (batch,) = batches(draft.hidden_size, draft.fc.in_features // draft.hidden_size, 1)
    batch.pop("error_records")
    with Searches() as searches:
        tokens, _, metrics = draft(**batch, ttt_steps=3, loss_config=resolve_loss_config("kl_div", "eager"))
    # Once for the target, and once for the draft in each step.
    assert searches.found == ["aten.max.dim"] * 4
    wanted = draft.verifier_lm_head(draft.verifier_norm(batch["verifier_last_hidden_states"])).argmax(-1)
    for step, said in enumerate(tokens):
        right = (said[:, : 8 - step] == wanted[:, step:]).sum()
        assert int(metrics[f"full_acc_{step}_sum"]) == int(right)
