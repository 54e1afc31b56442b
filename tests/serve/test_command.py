"""The stage's flags and its report, without an engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import DisagreementError, FitError, SettingsError
from pipeline.evaluate import command
from pipeline.evaluate.account import Answer, Counters
from pipeline.evaluate.engine import Served, Serving
from pipeline.evaluate.prompts import Prompt
from pipeline.evaluate.settings import parse
from tests.serve import rigged
from tests.serve.conftest import write_prompts

NEEDED = ["--model-path", "target", "--draft", "a=one", "--input", "held.jsonl", "--output-dir", "out"]


def test_drafts_keep_their_names_and_order() -> None:
    settings = parse([*NEEDED, "--draft", "b.2=folder=with=signs"])
    assert settings.drafts == {"a": Path("one"), "b.2": Path("folder=with=signs")}


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--draft", "folder"], "NAME=FOLDER"),
        (["--draft", "=folder"], "NAME=FOLDER"),
        (["--draft", "b="], "NAME=FOLDER"),
        (["--draft", "no draft=folder"], "NAME=FOLDER"),
        (["--draft", "a=other"], "a is given twice"),
        (["--num-speculative-tokens", "0"], "--num-speculative-tokens must be at least 1"),
        (["--max-new-tokens", "0"], "--max-new-tokens must be at least 1"),
        (["--limit", "0"], "--limit must be at least 1"),
    ],
)
def test_flags_out_of_their_range_are_refused(flags: list[str], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        parse([*NEEDED, *flags])


class Engines:
    """Stands in for the engines: given answers, and given logits where they are asked for."""

    def __init__(self, alone: list[int], given: list[int], logits: dict[int, float]) -> None:
        self.alone, self.given, self.logits = alone, given, logits
        self.asked: list[list[int]] = []

    def serve(self, serving: Serving, draft: Path | None, prompts: list[Prompt], log: Path) -> Served:
        tokens = self.alone if draft is None else self.given
        accepted = None if draft is None else [0] * (len(tokens) - 1)
        (prompt,) = prompts
        return Served(
            answers=[Answer(id=prompt.id, token_ids=tokens, finish="length", seconds=1.0, accepted=accepted)],
            texts=["text"],
            counters=Counters(
                steps=len(tokens),
                generated=len(tokens),
                drafts=len(accepted or []),
                draft_tokens=3 * len(accepted or []),
                accepted_per_position=(0, 0, 0),
            ),
            seconds=2.0 if draft is None else 1.0,
            load_seconds=1.0,
        )

    def largest_logits(self, serving: Serving, prefixes: list[list[int]], log: Path) -> list[dict[int, float]]:
        self.asked = prefixes
        return [self.logits for _ in prefixes]


@pytest.fixture
def flags(tmp_path: Path, stack_json: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A run on one prompt of the cyclic target."""
    monkeypatch.setenv("EYAS_STACK_JSON", str(stack_json))
    target, draft = rigged.cyclic_target(tmp_path / "target"), rigged.cyclic_draft(tmp_path / "draft")
    prompts = write_prompts(tmp_path / "held.jsonl", [20, 21])
    given = {"model-path": target, "draft": f"a={draft}", "input": prompts, "output-dir": tmp_path / "out"}
    return [text for name, value in given.items() for text in (f"--{name}", str(value))]


def run(engines: Engines, flags: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(command, "serve", engines.serve)
    monkeypatch.setattr(command, "largest_logits", engines.largest_logits)
    try:
        command.main(flags)
    finally:
        folder = Path(flags[flags.index("--output-dir") + 1])
        report = json.loads((folder / "evaluation.json").read_text())
    return dict(report)


def test_equal_answers_ask_no_engine_for_logits(flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Engines([22, 23], [22, 23], {})
    found = run(engines, flags, monkeypatch)["drafts"]["a"]
    assert (engines.asked, found["same_answers"], found["speed_up"]) == ([], 1, 2.0)


def test_a_near_tie_is_traced_on_the_prefix_both_share_and_shown(
    flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engines = Engines([22, 23, 24], [22, 30, 31], {23: 9.0, 30: 9.0 - 1e-6, 5: 1.0})
    found = run(engines, flags, monkeypatch)["drafts"]["a"]
    assert engines.asked == [[20, 21, 22]]
    (difference,) = found["differences"]
    assert (difference["id"], difference["position"], difference["near_tie"]) == ("p0", 1, True)
    assert (difference["without"], difference["given"]) == (23, 30)
    assert difference["gap"] == pytest.approx(1e-6)
    assert "p0, token 1: 't23' / 't30'" in capsys.readouterr().out


def test_a_difference_that_is_no_near_tie_fails_the_run_with_the_report_written(
    flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = Engines([22, 23, 24], [22, 30, 31], {23: 9.0, 30: 7.0})
    with pytest.raises(DisagreementError, match="p0 at token 1"):
        run(engines, flags, monkeypatch)
    report = json.loads((Path(flags[flags.index("--output-dir") + 1]) / "evaluation.json").read_text())
    assert report["drafts"]["a"]["near_ties"] == 0


def test_a_draft_that_does_not_fit_starts_no_engine(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "serve", lambda *_: pytest.fail("an engine was started"))
    (tmp_path / "draft" / "config.json").write_text(json.dumps(rigged.draft_config(vocab_size=64)))
    with pytest.raises(FitError, match="vocab_size is 64"):
        command.main(flags)


def test_a_prompt_with_no_room_for_its_answer_is_named(flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "serve", lambda *_: pytest.fail("an engine was started"))
    with pytest.raises(SettingsError, match="prompt p0 of 2 tokens, an answer of 507"):
        command.main([*flags, "--max-new-tokens", "507"])
