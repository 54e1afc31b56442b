"""Offline estimates beside served figures."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import InputError, SettingsError
from pipeline.evaluate.draft import Draft
from pipeline.evaluate.estimates import Agreement, read_estimates


@pytest.fixture
def drafts(tmp_path: Path) -> dict[str, Draft]:
    made = {}
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(name.encode())
        made[name] = Draft(
            folder=folder,
            form="eagle3",
            hidden_size=8,
            target_hidden_size=8,
            vocab_size=8,
            draft_vocab_size=8,
            layer_ids=None,
            shapes={},
        )
    return made


def estimate(folder: Path, **changes: Any) -> Path:
    report = {"acceptance_length": 1.9, "num_speculative_tokens": 3, "draft": "elsewhere", **changes}
    file = folder / "estimate.json"
    file.write_text(json.dumps(report))
    return file


def test_percent_is_how_far_the_estimate_is_above_what_was_served() -> None:
    assert Agreement(estimated=1.8, served=2.0, file=Path("e")).percent == pytest.approx(-10)


def test_an_estimate_finds_its_draft_by_the_weights_wherever_they_lie(drafts: dict[str, Draft], tmp_path: Path) -> None:
    file = estimate(tmp_path, draft_sha256=hashlib.sha256(b"two").hexdigest())
    assert read_estimates([file], drafts, 3) == {"two": (file, 1.9)}


def test_an_estimate_without_a_hash_finds_its_draft_by_its_folder(drafts: dict[str, Draft], tmp_path: Path) -> None:
    (tmp_path / "best").symlink_to("one")
    file = estimate(tmp_path, draft=str(tmp_path / "best"))
    assert read_estimates([file], drafts, 3) == {"one": (file, 1.9)}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"draft_sha256": "0" * 64}, "none of the drafts"),
        ({}, "none of the drafts"),
        ({"num_speculative_tokens": 5}, "5 draft tokens a step and this run of 3"),
    ],
)
def test_an_estimate_of_something_else_is_refused(
    change: dict[str, Any], told: str, drafts: dict[str, Draft], tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=told):
        read_estimates([estimate(tmp_path, **change)], drafts, 3)


@pytest.mark.parametrize("text", ["{", "[]", '{"acceptance_length": "high"}'])
def test_a_file_that_is_no_estimate_is_refused(text: str, drafts: dict[str, Draft], tmp_path: Path) -> None:
    (tmp_path / "estimate.json").write_text(text)
    with pytest.raises(InputError, match=r"estimate\.json"):
        read_estimates([tmp_path / "estimate.json"], drafts, 3)
