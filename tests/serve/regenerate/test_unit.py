"""What becomes of rows, with a scripted target."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.prepare import command as prepare
from pipeline.regenerate.prompts import Prompts
from tests.pipeline.prepare.templates import DROPS_TOOL_TURNS, STRIPS_EARLIER_THOUGHTS
from tests.serve.regenerate.conftest import Stage, assistant, says, user
from tests.serve.regenerate.scripted import Scripted, echo


def prompts(*texts: str) -> list[dict[str, str]]:
    return [{"id": text, "prompt": text} for text in texts]


def test_answers_stand_in_the_order_of_the_input_whichever_was_finished_first(stage: Stage) -> None:
    stage.rows(*prompts("a", "b", "c", "d", "e"))
    stage.run("--batch-size", 1)
    assert [row["id"] for row in stage.conversations()] == ["a", "b", "c", "d", "e"]
    assert [row["messages"] for row in stage.conversations()] == [
        [user(text), assistant(f"You said: {text}")] for text in "abcde"
    ]
    assert [len(unit) for unit in stage.generator.units] == [4, 1], "a unit is four batches"


def test_a_later_turn_is_asked_with_the_answers_before_it(stage: Stage, tokenizer: Any) -> None:
    stage.rows({"messages": [user("a"), assistant("old"), user("b"), assistant("old"), user("c")]})
    stage.run()
    last = tokenizer.decode(stage.generator.requests[-1].prompt)
    assert "You said: a" in last
    assert "You said: b" in last
    assert "old" not in last
    assert stage.conversations()[0]["messages"][-1] == assistant("You said: c")


def test_prompt_and_answer_are_the_tokens_that_prepare_makes_of_them(stage: Stage, tmp_path: Path) -> None:
    stage.rows({"messages": [{"role": "system", "content": "Be kind."}, user("a  b"), assistant("x"), user("é")]})
    stage.run()
    flags = ["--input", str(stage.out / "conversations.jsonl"), "--model-path", str(stage.target)]
    prepare.main([*flags, "--output-dir", str(tmp_path / "prepared")])
    sample = json.loads((tmp_path / "prepared" / "tokenized.jsonl").read_text("utf-8"))
    first, second = stage.generator.requests
    assert sample["input_ids"][: len(first.prompt)] == first.prompt
    assert sample["input_ids"][: len(second.prompt)] == second.prompt
    header = stage.header()
    assert header["tokens"] == sum(sample["loss_mask"])
    assert (header["retokenized_answers"], header["refused_by_prepare"]) == (0, {})


def test_an_answer_of_tokens_that_its_text_does_not_give_back_is_counted(stage: Stage, tokenizer: Any) -> None:
    class LetterByLetter(Scripted):
        def advance(self) -> Any:
            (answer,) = super().advance()
            letters = [tokenizer(letter, add_special_tokens=False)["input_ids"][0] for letter in "hello"]
            return [type(answer)(answer.name, [*letters, answer.produced[-1]], True)]

    stage.rows(*prompts("a", "b"))
    stage.run_with(LetterByLetter(tokenizer))
    assert [row["messages"][1]["content"] for row in stage.conversations()] == ["hello", "hello"]
    assert stage.header()["retokenized_answers"] == 2


def test_an_answer_ended_by_another_token_than_the_template_has_is_counted(stage: Stage, tokenizer: Any) -> None:
    class EndsOtherwise(Scripted):
        def advance(self) -> Any:
            (answer,) = super().advance()
            end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
            return [type(answer)(answer.name, [*answer.produced[:-1], end], True)]

    stage.rows(*prompts("a"))
    stage.run_with(EndsOtherwise(tokenizer))
    assert stage.conversations()[0]["messages"][1]["content"] == "You said: a"
    assert stage.header()["retokenized_answers"] == 1


def test_a_seed_depends_on_the_run_the_conversation_and_the_turn_alone(stage: Stage, tmp_path: Path) -> None:
    talk = {"id": "x", "messages": [user("a"), assistant("old"), user("b")]}

    def seeds(*rows: object, seed: int = 7) -> list[int]:
        stage.rows(*rows)
        stage.run("--seed", seed, "--temperature", 1, out=tmp_path / str(len(list(tmp_path.iterdir()))))
        return [request.seed for request in stage.generator.requests if request.name.startswith("x#")]

    alone = seeds(talk)
    assert alone == seeds(*prompts("a", "b", "c", "d"), talk, *prompts("e"))
    # The documented formula: the first 63 bits of the sha256 of [seed, id, turn].
    expected = [int(hashlib.sha256(f'[7, "x", {turn}]'.encode()).hexdigest()[:16], 16) // 2 for turn in (0, 1)]
    assert alone == expected
    assert not set(alone) & set(seeds(talk, seed=8))
    assert not set(alone) & set(seeds({**talk, "id": "x#0"}))


def test_an_unfinished_answer_rejects_its_row_or_ends_the_conversation_before_it(stage: Stage) -> None:
    def say(prompt: str, seed: int) -> str:
        return "on and on " * 50 if "long" in prompt.rsplit("<|im_start|>user", maxsplit=1)[-1] else "fine"

    stage.rows({"messages": [user("short"), assistant("old"), user("long")]}, *prompts("long", "short"))
    stage.run("--max-new-tokens", 20, say=say)
    first, second = stage.conversations()
    assert first["messages"] == [user("short"), assistant("fine")]
    assert second["id"] == "short"
    assert [(row["id"], row["reason"], row["line"]) for row in stage.rejected()] == [("long", "unfinished", 2)]
    assert stage.header()["cut"] == {"unfinished": 1}


def test_an_unfinished_answer_that_is_kept_ends_the_conversation_and_is_marked(stage: Stage) -> None:
    def say(prompt: str, seed: int) -> str:
        return "on and on " * 50 if "long" in prompt.rsplit("<|im_start|>user", maxsplit=1)[-1] else "fine"

    stage.rows({"messages": [user("long"), assistant("old"), user("short"), assistant("old")]}, *prompts("short"))
    stage.run("--max-new-tokens", 20, "--unfinished", "keep", say=say)
    first, second = stage.conversations()
    question, answer = first["messages"]
    assert question == user("long")
    assert answer.pop("unfinished") is True
    assert answer["content"].startswith("on and on")
    assert second["messages"] == [user("short"), assistant("fine")]
    assert not stage.rejected()
    assert stage.header()["retokenized_answers"] == 0


def test_an_answer_that_just_ends_in_time_is_finished(stage: Stage, tokenizer: Any) -> None:
    length = len(tokenizer("You said: a<|im_end|>", add_special_tokens=False)["input_ids"])
    stage.rows(*prompts("a"))
    stage.run("--max-new-tokens", length)
    assert stage.header()["tokens"] == length


def test_an_empty_answer_rejects_its_row(stage: Stage) -> None:
    stage.rows(*prompts("a", "b"))
    stage.run(say=lambda prompt, seed: " \n" if "user\na" in prompt else "fine")
    assert [(row["id"], row["reason"]) for row in stage.rejected()] == [("a", "empty-answer")]


@pytest.mark.parametrize("text", ["<think>\nhm\n</think>\n\nfine", '<tool_call>{"name": "t"}</tool_call>', " a \n"])
def test_an_answer_is_kept_whole(stage: Stage, text: str) -> None:
    stage.rows(*prompts("a"))
    stage.run(say=says(text))
    assert stage.conversations()[0]["messages"][1]["content"] == text


def test_special_tokens_in_an_answer_are_not_lost_and_prepare_is_said_to_refuse_them(stage: Stage) -> None:
    stage.rows(*prompts("a"))
    stage.run(say=says("one<|im_start|>two"))
    assert stage.conversations()[0]["messages"][1]["content"] == "one<|im_start|>two"
    assert stage.header()["refused_by_prepare"] == {"special-token-in-text": 1}


def test_a_prompt_that_leaves_no_room_is_rejected_and_one_that_leaves_some_is_answered_in_it(stage: Stage) -> None:
    stage.rows(*prompts("word " * 100, "word"))
    stage.run("--max-model-len", 60)
    assert [row["reason"] for row in stage.rejected()] == ["prompt-too-long"]
    (request,) = stage.generator.requests
    assert request.max_new_tokens == 60 - len(request.prompt)


def test_rows_that_are_none_are_rejected_with_the_reasons_of_prepare(stage: Stage) -> None:
    stage.rows(
        "{",
        {"prompt": 3},
        {"messages": []},
        {"messages": [user("a")], "tools": [1]},
        {"messages": [{**user("a"), "tool_calls": [1]}]},
        {"prompt": "a<|im_end|>"},
        {"id": "twice", "prompt": "a"},
        {"id": "twice", "prompt": "b"},
        {"conversations": [{"from": "human", "value": "c"}]},
    )
    stage.run()
    assert [row["id"] for row in stage.conversations()] == ["twice", "chats:9"]
    assert [(row["line"], row["reason"]) for row in stage.rejected()] == [
        (1, "not-json"),
        (2, "wrong-type"),
        (3, "empty-conversation"),
        (4, "unsupported-field"),
        (5, "unsupported-field"),
        (6, "special-token-in-text"),
        (8, "duplicate-id"),
    ]
    header = stage.header()
    assert (header["rows_read"], header["conversations"], sum(header["rejected"].values())) == (9, 2, 7)


MARKS_THE_LAST_ANSWER = STRIPS_EARLIER_THOUGHTS.replace(
    "and not loop.last %}{{ message['content'].split('</think>')[-1] }}",
    "and loop.last %}<think></think>{{ message['content'] }}",
)


@pytest.mark.parametrize(
    ("template", "said"), [(STRIPS_EARLIER_THOUGHTS, "<think>hm</think>fine"), (MARKS_THE_LAST_ANSWER, "fine")]
)
def test_a_conversation_ends_where_the_template_rewrites_what_was_said(stage: Stage, template: str, said: str) -> None:
    stage.rows({"messages": [user("a"), assistant("old"), user("b")]})
    with_template(stage, template)
    stage.run(say=says(said))
    assert stage.conversations()[0]["messages"] == [user("a"), assistant(said)]
    assert len(stage.generator.requests) == 1, "no time is spent on answers that cannot be used"
    assert stage.header()["cut"] == {"template-rewrites-history": 1}


@pytest.mark.parametrize("before", [[user("How warm?")], [user("How warm?"), assistant("<call>")]])
def test_a_template_that_loses_a_tools_result_gets_no_answer_to_it(stage: Stage, before: list[dict[str, str]]) -> None:
    stage.rows({"messages": [*before, {"role": "tool", "content": "21 degrees"}]}, *prompts("b"))
    with_template(stage, DROPS_TOOL_TURNS)
    stage.run()
    assert [row["reason"] for row in stage.rejected()] == ["template-changes-text"]
    assert len(stage.generator.requests) == 1


def with_template(stage: Stage, template: str) -> None:
    """Give the stage a target with another chat template."""
    (stage.move_target() / "chat_template.jinja").write_text(template)


def test_the_token_that_ends_an_answer_is_the_templates(tokenizer: Any) -> None:
    assert Prompts(tokenizer, 100).end_of_turn() == tokenizer.convert_tokens_to_ids("<|im_end|>")


def test_kept_calls_are_counted(stage: Stage) -> None:
    tool = {"role": "tool", "content": "21"}
    stage.rows({"messages": [user("a"), assistant("<call>"), tool, assistant("old")]})
    stage.run(say=echo)
    assert stage.conversations()[0]["messages"][:3] == [user("a"), assistant("<call>"), tool]
    assert (stage.header()["kept_calls"], stage.header()["answers"]) == (1, 1)
