"""What holds of every plan: over random lines, broken ones among them, and random limits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.extract.plan import Plan, build_plan, read_unit

VOCAB = 40
LONGEST = 30
Row = dict[str, Any]


@dataclass(frozen=True)
class Limits:
    batch_size: int
    token_budget: int
    max_seq_len: int
    over_long: Literal["reject", "cut"]


class Data(NamedTuple):
    """A file: its bytes, and each line's row as `json.dumps` wrote it, or "blank", or "broken"."""

    content: bytes
    lines: list[Row | Literal["blank", "broken"]]

    def usable(self, limits: Limits) -> Iterator[tuple[int, Row]]:
        """Line and row of the samples that belong in units, cut where they are to be; found line by line."""
        taken = set[str]()
        for number, row in enumerate(self.lines, start=1):
            if not isinstance(row, dict) or row["id"] in taken:
                continue
            if len(row["input_ids"]) > limits.max_seq_len and limits.over_long == "reject":
                continue
            taken.add(row["id"])
            yield number, {**row, **{key: row[key][: limits.max_seq_len] for key in ("input_ids", "loss_mask")}}


BREAKING: tuple[Callable[[Row], bytes], ...] = (
    lambda row: json.dumps(row).encode()[:-1],
    lambda row: b"[" * 5000,
    lambda row: b"\xff" + json.dumps(row).encode(),
    lambda row: json.dumps([row]).encode(),
    lambda row: json.dumps({**row, "id": ""}).encode(),
    lambda row: json.dumps({**row, "id": None}).encode(),
    lambda row: json.dumps({"id": row["id"], "input_ids": row["input_ids"]}).encode(),
    lambda row: json.dumps({**row, "input_ids": [], "loss_mask": []}).encode(),
    lambda row: json.dumps({**row, "input_ids": [*row["input_ids"][1:], VOCAB]}).encode(),
    lambda row: json.dumps({**row, "input_ids": [*row["input_ids"][1:], -1]}).encode(),
    lambda row: json.dumps({**row, "input_ids": [*row["input_ids"][1:], 1.0]}).encode(),
    lambda row: json.dumps({**row, "loss_mask": [*row["loss_mask"], 1]}).encode(),
    lambda row: json.dumps({**row, "loss_mask": [*row["loss_mask"][1:], 2]}).encode(),
    lambda row: json.dumps({**row, "loss_mask": [*row["loss_mask"][1:], True]}).encode(),
)
LIMITS = st.builds(
    Limits,
    batch_size=st.integers(1, 5),
    token_budget=st.integers(1, 2 * LONGEST),
    max_seq_len=st.integers(1, LONGEST + 1),
    over_long=st.sampled_from(["reject", "cut"]),
)


@st.composite
def data(draw: st.DrawFn) -> Data:
    """Sound samples mostly; ids now and then again, and broken and blank lines in between."""
    texts, lines = list[bytes](), list[Any]()
    for number in range(draw(st.integers(0, 25))):
        length = draw(st.integers(1, LONGEST))
        name = draw(st.text(max_size=3)) + f"#{draw(st.integers(max(0, number - 3), number))}"
        tokens = [(number + place) % VOCAB for place in range(length)]
        row = {"id": name, "input_ids": tokens, "loss_mask": [token % 2 for token in tokens]}
        kind = draw(st.sampled_from([*["sound"] * 6, "broken", "blank"]))
        breaking = draw(st.sampled_from(BREAKING)) if kind == "broken" else None
        ascii_only, blank = draw(st.booleans()), draw(st.sampled_from([b"", b" \t"]))
        sound = json.dumps(row, ensure_ascii=ascii_only).encode()
        texts.append(breaking(row) if breaking else blank if kind == "blank" else sound)
        lines.append(row if kind == "sound" else kind)
    end = draw(st.sampled_from([b"\n", b"\r\n"]))
    return Data(end.join(texts) + draw(st.sampled_from([b"", end])), lines)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data") / "tokenized.jsonl"


def plan_of(file: Path, data: Data, limits: Limits) -> Plan:
    file.write_bytes(data.content)
    return build_plan(file, vocab_size=VOCAB, **vars(limits))


def contents(plan: Plan) -> Any:
    """Everything of a plan that a run or its account could depend on."""
    units = [[(ref.id, ref.line, ref.length) for ref in unit.samples] for unit in plan.units]
    return units, [(rejection.id, rejection.line, rejection.reason) for rejection in plan.rejected]


always = settings(derandomize=True, deadline=None, max_examples=150)


@always
@given(data(), LIMITS)
def test_every_usable_sample_is_in_exactly_one_unit_in_data_order(file: Path, data: Data, limits: Limits) -> None:
    plan = plan_of(file, data, limits)
    assert [unit.index for unit in plan.units] == list(range(len(plan.units)))
    packed = [(ref.line, ref.id, ref.length) for unit in plan.units for ref in unit.samples]
    assert packed == [(line, row["id"], len(row["input_ids"])) for line, row in data.usable(limits)]


@always
@given(data(), LIMITS)
def test_every_other_line_that_is_not_blank_is_rejected(file: Path, data: Data, limits: Limits) -> None:
    plan = plan_of(file, data, limits)
    not_blank = {number for number, row in enumerate(data.lines, start=1) if row != "blank"}
    assert [r.line for r in plan.rejected] == sorted(not_blank - {line for line, _ in data.usable(limits)})
    assert sum(len(unit.samples) for unit in plan.units) + len(plan.rejected) == plan.input_samples == len(not_blank)


@always
@given(data(), LIMITS)
def test_no_unit_is_over_a_limit_but_a_single_longer_sample(file: Path, data: Data, limits: Limits) -> None:
    for unit in plan_of(file, data, limits).units:
        assert 1 <= len(unit.samples) <= limits.batch_size
        assert unit.tokens == sum(ref.length for ref in unit.samples)
        assert unit.tokens <= limits.token_budget or len(unit.samples) == 1
        assert all(ref.length <= limits.max_seq_len for ref in unit.samples)


@always
@given(data(), LIMITS)
def test_the_first_sample_of_the_next_unit_would_not_have_fitted(file: Path, data: Data, limits: Limits) -> None:
    for unit, following in pairwise(plan_of(file, data, limits).units):
        full = len(unit.samples) == limits.batch_size
        assert full or unit.tokens + following.samples[0].length > limits.token_budget


@always
@given(data(), LIMITS)
def test_units_read_back_are_the_rows_as_json_wrote_them(file: Path, data: Data, limits: Limits) -> None:
    plan = plan_of(file, data, limits)
    read = chain.from_iterable(read_unit(file, unit) for unit in plan.units)
    rows = [{"id": sample.id, "input_ids": sample.input_ids, "loss_mask": sample.loss_mask} for sample in read]
    assert rows == [row for _, row in data.usable(limits)]


@always
@given(data(), LIMITS, LIMITS)
def test_plans_have_one_digest_exactly_if_they_do_the_same(file: Path, data: Data, one: Limits, two: Limits) -> None:
    first, again, other = (plan_of(file, data, limits) for limits in (one, one, two))
    assert first == again
    assert (first.digest == other.digest) == (contents(first) == contents(other))
    assert first.data_sha256 == hashlib.sha256(data.content).hexdigest()


@always
@given(data(), LIMITS)
def test_the_digest_is_that_of_the_units_and_rejections_as_json(file: Path, data: Data, limits: Limits) -> None:
    plan = plan_of(file, data, limits)
    units, rejected = contents(plan)
    rows = [*units, *(dict(zip(("id", "line", "reason"), row, strict=True)) for row in rejected)]
    text = "".join(f"{line}\n" for line in ["eyas plan 1", *map(json.dumps, rows)])
    assert plan.digest == hashlib.sha256(text.encode()).hexdigest()
