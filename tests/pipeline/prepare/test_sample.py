from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.prepare.encode import Settings
from pipeline.prepare.sample import DUPLICATE, Rejected, Sampler, settled
from pipeline.prepare.source import Row
from tests.pipeline.prepare.conftest import talk


@dataclass(frozen=True)
class One:
    """A sample, read back from its line."""

    id: str
    input_ids: list[int]
    loss_mask: list[int]
    cut: bool


def outcomes(tokenizer: Any, rows: list[Any], max_seq_len: int = 2048) -> list[One | Rejected]:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    numbered = [Row("chats.jsonl", number, line) for number, line in enumerate(lines, 1)]
    sampler = Sampler(tokenizer, Settings(max_seq_len=max_seq_len))
    made: list[One | Rejected] = []
    for outcome in settled(sampler(numbered), set()):
        if isinstance(outcome, Rejected):
            made.append(outcome)
            continue
        made += [One(**json.loads(sample.line), cut=sample.cut) for sample in outcome.samples]
    return made


def test_row_without_an_id_is_named_after_its_file_and_line(tokenizer: Any) -> None:
    made = outcomes(tokenizer, [{"messages": talk("a", "b")}, b"{", {"id": "mine", "messages": talk("a", "c")}])
    assert [one.id for one in made] == ["chats:1", "chats:2", "mine"]


def test_second_use_of_an_id_is_rejected(tokenizer: Any) -> None:
    rows = [{"id": name, "messages": talk("a", text)} for name, text in (("same", "b"), ("same", "c"), ("other", "c"))]
    _, second, third = outcomes(tokenizer, rows)
    assert isinstance(second, Rejected)
    assert second.reason == "duplicate-id"
    assert isinstance(third, One)


def test_second_sample_of_the_same_tokens_and_mask_is_dropped_whatever_its_id(tokenizer: Any) -> None:
    rows = [{"id": name, "messages": talk("a", "b")} for name in ("one", "two", "one")]
    first, *others = outcomes(tokenizer, rows)
    assert isinstance(first, One)
    assert [one.reason for one in others if isinstance(one, Rejected)] == [DUPLICATE, DUPLICATE]


def test_same_tokens_with_another_mask_are_no_duplicate(tokenizer: Any) -> None:
    rows = [{"input_ids": [5, 6, 7], "loss_mask": mask} for mask in ([0, 1, 1], [0, 0, 1], [0, 1, 1])]
    assert [type(one) for one in outcomes(tokenizer, rows)] == [One, One, Rejected]


def test_id_of_a_rejected_row_is_still_free(tokenizer: Any) -> None:
    rows = [{"id": "x", "messages": []}, {"id": "x", "messages": talk("a", "b")}]
    assert [type(one) for one in outcomes(tokenizer, rows)] == [Rejected, One]


def test_given_id_that_looks_like_a_default_one_counts_as_taken(tokenizer: Any) -> None:
    rows = [{"id": "chats:2", "messages": talk("a", "b")}, {"messages": talk("a", "c")}]
    assert [type(one) for one in outcomes(tokenizer, rows)] == [One, Rejected]


def test_sample_of_exactly_the_limit_is_whole_and_a_longer_one_is_cut_on_the_right(tokenizer: Any) -> None:
    row = {"messages": talk("Hi", "One two three four five")}
    (whole,) = outcomes(tokenizer, [row])
    assert isinstance(whole, One)
    length = len(whole.input_ids)
    assert outcomes(tokenizer, [row], length) == [whole]
    (cut,) = outcomes(tokenizer, [row], length - 3)
    assert isinstance(cut, One)
    assert (cut.input_ids, cut.loss_mask) == (
        whole.input_ids[:-3],
        whole.loss_mask[:-3],
    )
    assert (whole.cut, cut.cut) == (False, True)


def test_an_unfinished_answer_ends_the_sample_with_its_last_word_and_no_end_of_turn(tokenizer: Any) -> None:
    talk = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, two, three and"}]
    [whole] = outcomes(tokenizer, [{"messages": talk}])
    [cut] = outcomes(tokenizer, [{"messages": [talk[0], talk[1] | {"unfinished": True}]}])
    assert isinstance(whole, One)
    assert isinstance(cut, One)
    answer = tokenizer("One, two, three and", add_special_tokens=False)["input_ids"]
    assert cut.input_ids[-len(answer) :] == answer
    assert sum(cut.loss_mask) == len(answer)
    assert whole.input_ids[: len(cut.input_ids) + 1] == [*cut.input_ids, tokenizer.eos_token_id]
    assert sum(whole.loss_mask) == len(answer) + 1


@pytest.mark.parametrize("marked", [0, 1])
def test_only_a_last_answer_may_be_unfinished(tokenizer: Any, marked: int) -> None:
    talk = [{"role": role, "content": "Words."} for role in ("user", "assistant", "user", "assistant")]
    talk[marked] |= {"unfinished": True}  # type: ignore[dict-item]
    [rejected] = outcomes(tokenizer, [{"messages": talk}])
    assert isinstance(rejected, Rejected)
    assert rejected.reason == "unfinished-inside"


def test_first_trained_token_decides_whether_a_cut_sample_is_kept(tokenizer: Any) -> None:
    row = {"messages": talk("Hi", "One two three")}
    (whole,) = outcomes(tokenizer, [row])
    assert isinstance(whole, One)
    first = whole.loss_mask.index(1)
    assert isinstance(outcomes(tokenizer, [row], first + 1)[0], One)
    (rejected,) = outcomes(tokenizer, [row], first)
    assert isinstance(rejected, Rejected)
    assert rejected.reason == "answer-beyond-limit"
    assert f"number {first + 1}, the limit is {first}" in rejected.detail


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
roles = st.sampled_from(["system", "user", "assistant", "tool", "human", "gpt", "who"]) | anything
texts = st.text(max_size=30) | st.sampled_from(["<|im_end|>", " \n", "\ud800", "a\x00b", "\x04"]) | anything
messages = st.fixed_dictionaries({"role": roles, "content": texts}) | st.fixed_dictionaries(
    {"from": roles, "value": texts}
)
talks = st.lists(messages | anything, max_size=5) | anything
nearly_rows = st.dictionaries(st.sampled_from(["id", "messages", "conversations", "tools"]), talks, max_size=3)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(rows=st.lists(nearly_rows | anything | st.binary(max_size=40), min_size=1, max_size=4))
def test_whatever_a_row_holds_it_becomes_a_sound_sample_or_is_rejected(tokenizer: Any, rows: list[Any]) -> None:
    made = outcomes(tokenizer, rows)
    assert len(made) == len(rows)
    for one in made:
        if isinstance(one, One):
            assert len(one.input_ids) == len(one.loss_mask)
            assert 1 in one.loss_mask
            assert set(one.loss_mask) <= {0, 1}
        else:
            assert one.reason
            assert one.detail.isprintable()
