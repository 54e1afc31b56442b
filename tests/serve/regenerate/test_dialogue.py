"""Which turns the target answers, and what of a conversation is left when it cannot."""

from __future__ import annotations

import pytest

from pipeline.prepare.rejection import Rejection
from pipeline.regenerate.dialogue import Dialogue, Turn
from tests.serve.regenerate.conftest import assistant, user

SYSTEM = {"role": "system", "content": "Be kind."}
TOOL = {"role": "tool", "content": "21 degrees"}
TURN = Turn([1], [2])


def answered(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    dialogue = Dialogue("d", messages)
    while dialogue.waits:
        dialogue.answer(TURN, f"new {len(dialogue.turns) + 1}")
    return dialogue.result()


def test_every_answer_is_replaced_and_all_other_turns_stay() -> None:
    asked = [SYSTEM, user("a"), assistant("old"), {"role": "developer", "content": "Short."}, user("b"), assistant("x")]
    assert answered(asked) == [*asked[:2], assistant("new 1"), *asked[3:5], assistant("new 2")]
    assert asked[2] == assistant("old"), "the given messages are not changed"


@pytest.mark.parametrize("last", [user("b"), TOOL])
def test_a_conversation_that_ends_with_a_question_or_a_result_gets_an_answer(last: dict[str, str]) -> None:
    assert answered([SYSTEM, user("a"), last])[-1] == assistant("new 1")


def test_a_tool_call_stays_with_its_result_and_the_answer_to_that_is_new() -> None:
    asked = [user("How warm?"), assistant("<tool_call>t</tool_call>"), TOOL, assistant("old"), user("b")]
    assert answered(asked) == [*asked[:3], assistant("new 1"), user("b"), assistant("new 2")]
    dialogue = Dialogue("d", asked)
    assert dialogue.history == asked[:3]
    assert dialogue.calls() == 1


def test_the_history_of_a_later_turn_has_the_new_answers() -> None:
    dialogue = Dialogue("d", [user("a"), assistant("old"), user("b")])
    dialogue.answer(TURN, "new")
    assert dialogue.history == [user("a"), assistant("new"), user("b")]


def test_a_conversation_ends_after_the_last_answer_that_could_be_had() -> None:
    dialogue = Dialogue("d", [user("a"), assistant("old"), user("b"), assistant("<call>"), TOOL, assistant("old")])
    dialogue.answer(TURN, "new")
    dialogue.stop(Rejection("unfinished", ""))
    assert not dialogue.waits
    assert dialogue.result() == [user("a"), assistant("new")]
    assert dialogue.calls() == 0


def test_without_a_first_answer_nothing_is_left() -> None:
    dialogue = Dialogue("d", [user("a"), assistant("<call>"), TOOL])
    dialogue.stop(Rejection("unfinished", ""))
    assert dialogue.result() == []


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([assistant("Hello!"), user("a")], "assistant-first"),
        ([SYSTEM], "nothing-to-answer"),
        ([user("a"), assistant(" "), TOOL], "empty-answer"),
    ],
)
def test_what_the_target_cannot_answer_is_refused(messages: list[dict[str, str]], reason: str) -> None:
    with pytest.raises(Rejection) as caught:
        Dialogue("d", messages)
    assert caught.value.reason == reason
