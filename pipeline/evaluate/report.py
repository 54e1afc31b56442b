"""What was measured: a table for people, JSON for programs, and every answer."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.evaluate.account import Account
from pipeline.evaluate.compare import Traced
from pipeline.evaluate.draft import Draft
from pipeline.evaluate.engine import Served
from pipeline.evaluate.estimates import Agreement
from pipeline.evaluate.settings import NO_DRAFT
from pipeline.store.durable import write_synced

Json = dict[str, Any]
REPORT, TABLE, ANSWERS = "evaluation.json", "evaluation.txt", "answers.jsonl"
_WIDTH = 120
_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class Measured:
    """All about one draft."""

    draft: Draft
    served: Served
    account: Account
    partings: list[Traced]
    agreement: Agreement | None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A whole run."""

    alone: Served
    """the target without a draft"""
    drafts: dict[str, Measured]
    words: Mapping[int, str] = field(default_factory=dict)
    """text of the tokens at partings"""

    def speed_up(self, name: str) -> float:
        """Output tokens a second with a draft, over those without."""
        return self.drafts[name].served.tokens_per_second / self.alone.tokens_per_second


def write_report(folder: Path, evaluation: Evaluation, about: Json) -> None:
    """Write the three files; the JSON last.

    Args:
        folder: where.
        evaluation: what was measured.
        about: what it was measured with.
    """
    lines = [json.dumps(row) + "\n" for row in _answers(evaluation)]
    write_synced(folder / ANSWERS, [line.encode() for line in lines])
    write_synced(folder / TABLE, [rendered(evaluation).encode()])
    write_synced(folder / REPORT, [json.dumps(as_json(evaluation, about), indent=2).encode() + b"\n"])


def as_json(evaluation: Evaluation, about: Json) -> Json:
    """All figures; see docs/acceptance.md for what each is."""
    return {
        "format": 1,
        **about,
        "no_draft": _speed(evaluation.alone),
        "drafts": {name: _draft(evaluation, name) for name in evaluation.drafts},
    }


def rendered(evaluation: Evaluation) -> str:
    """The table as text, partings below it."""
    text = io.StringIO()
    console = Console(file=text, width=_WIDTH)
    console.print(_table(evaluation))
    for name, measured in evaluation.drafts.items():
        for line in _remarks(name, measured, evaluation.words):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return text.getvalue()


def _table(evaluation: Evaluation) -> Table:
    table = Table(title=f"{len(evaluation.alone.answers):,} prompts, greedy", title_justify="left")
    for name in (
        "",
        "acceptance length",
        "accepted at position",
        "tokens",
        "tok/s",
        "speed-up",
        "ms/step",
        "same answers",
    ):
        table.add_column(name, justify="left" if not name else "right")
    table.add_row(NO_DRAFT, "", "", *_cells(evaluation.alone, 1.0), "")
    for name, measured in evaluation.drafts.items():
        counters, answers = measured.served.counters, len(measured.served.answers)
        positions = " ".join(f"{rate:.1%}" for rate in _rates(measured.served))
        same = f"{answers - len(measured.partings)} of {answers}"
        cells = _cells(measured.served, evaluation.speed_up(name))
        table.add_row(name, f"{counters.acceptance_length:.3f}", positions, *cells, same)
    return table


def _cells(served: Served, speed_up: float) -> tuple[str, str, str, str]:
    rate = f"{served.tokens_per_second:,.1f}"
    return f"{served.counters.generated:,}", rate, f"{speed_up:.2f}", f"{served.milliseconds_per_step:.1f}"


def _rates(served: Served) -> list[float]:
    counters = served.counters
    return [count / counters.drafts if counters.drafts else 0.0 for count in counters.accepted_per_position]


def _remarks(name: str, measured: Measured, words: Mapping[int, str]) -> list[str]:
    lines = []
    if agreement := measured.agreement:
        lines.append(
            f"{name}: estimated {agreement.estimated:.3f}, served {agreement.served:.3f}: {agreement.percent:+.1f}%"
        )
    ties = sum(traced.near_tie for traced in measured.partings)
    if measured.partings:
        lines.append(
            f"{name}: {len(measured.partings)} answers differ, {ties} of them first at a near-tie of the target's"
        )
    for traced in sorted(measured.partings, key=lambda traced: traced.near_tie)[:_SHOWN]:
        parting = traced.parting
        pair = " / ".join(
            "end" if token is None else repr(words.get(token, token)) for token in (parting.without, parting.given)
        )
        gap = "unknown" if traced.gap is None else f"{traced.gap:.2g}"
        verdict = "near-tie" if traced.near_tie else "NO NEAR-TIE"
        lines.append(
            f"  {parting.id}, token {parting.position}: {pair}, logits apart by {gap}, noise {traced.bound:.2g}: "
            f"{verdict}"
        )
    return lines


def _speed(served: Served) -> Json:
    return {
        "answers": len(served.answers),
        "tokens": served.counters.generated,
        "seconds": served.seconds,
        "tokens_per_second": served.tokens_per_second,
        "engine_steps": served.counters.steps,
        "milliseconds_per_step": served.milliseconds_per_step,
        "load_seconds": served.load_seconds,
    }


def _draft(evaluation: Evaluation, name: str) -> Json:
    measured = evaluation.drafts[name]
    counters, partings, agreement = measured.served.counters, measured.partings, measured.agreement
    return {
        "folder": str(measured.draft.folder),
        "form": measured.draft.form,
        "weights_sha256": measured.draft.weights_sha256,
        "draft_vocab_size": measured.draft.draft_vocab_size,
        "layer_ids": measured.draft.layer_ids,
        "acceptance_length": counters.acceptance_length,
        "acceptance_per_position": _rates(measured.served),
        "drafts": counters.drafts,
        "draft_tokens": counters.draft_tokens,
        "accepted": counters.accepted,
        "accepted_per_position": list(counters.accepted_per_position),
        "account": asdict(measured.account),
        **_speed(measured.served),
        "speed_up": evaluation.speed_up(name),
        "same_answers": len(measured.served.answers) - len(partings),
        "near_ties": sum(traced.near_tie for traced in partings),
        "differences": [
            {**asdict(traced.parting), "gap": traced.gap, "bound": traced.bound, "near_tie": traced.near_tie}
            for traced in partings
        ],
        "estimate": agreement
        and {"file": str(agreement.file), "acceptance_length": agreement.estimated, "percent": agreement.percent},
    }


def _answers(evaluation: Evaluation) -> Sequence[Json]:
    engines = {NO_DRAFT: evaluation.alone} | {name: one.served for name, one in evaluation.drafts.items()}
    return [
        {"draft": name, **asdict(answer), "text": text}
        for name, served in engines.items()
        for answer, text in zip(served.answers, served.texts, strict=True)
    ]
