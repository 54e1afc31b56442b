"""Ten families of chat templates times conversations: exactly what the target writes is trained, or nothing is."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from pipeline.prepare.conversation import Conversation
from pipeline.prepare.encode import Encoded, Encoder, Settings
from pipeline.prepare.rejection import Rejection
from tests.pipeline.prepare.conftest import talk
from tests.pipeline.prepare.families import FAMILIES, Family, Message

MOMENT = datetime(2026, 1, 1).strftime
SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "functions.sky:0", "type": "function", "function": {"name": "sky", "arguments": {"in": "Rome"}}}
    ],
}
TOOLS = [{"type": "function", "function": {"name": "sky", "parameters": {"type": "object", "properties": {}}}}]
RESULT = {"role": "tool", "tool_call_id": "functions.sky:0", "name": "sky", "content": "clear"}


def thinking(*turns: str) -> list[Message]:
    return [
        {**message, "reasoning_content": f"Thought {number}."} if message["role"] == "assistant" else message
        for number, message in enumerate(talk(*turns))
    ]


CONVERSATIONS: dict[str, list[Message]] = {
    "single": talk("Hi", "Hello there."),
    "multi-turn": talk("Hi", "Hello.", "And?", "No more.", "Really?", "Really, no more."),
    "system": [SYSTEM, *talk("Hi", "Hello.", "And?", "No more.")],
    "assistant first": talk("", "Welcome.", "Hi", "How are you?")[1:],
    "two users": [{"role": "user", "content": "Hi"}, *talk("Still there?", "Yes.")],
    "empty answer": talk("Say nothing.", "", "Now something.", "Something."),
    "unicode": talk("Größe? 🦅", "Ä 🦉🦅👩‍👩‍👧 ﬁ e\u0301 ½ ∑", "中文?", "好的，没问题。"),
    "right to left": talk("مرحبا", "أهلاً بك \u202bيا صديقي\u202c.", "שלום", "שלום לך"),
    "markers": talk("What is {marks}?", "It is {marks}, or {marks}.", "{marks}", "Yes."),
    "tools": [{"role": "user", "content": "Sky?"}, CALL, RESULT, {"role": "assistant", "content": "It is clear."}],
    "reasoning": thinking("2+2?", "4", "And 3+3?", "6"),
    "200 turns": talk(*(f"Turn {number}." for number in range(200))),
}


@pytest.fixture(scope="session", params=FAMILIES, ids=lambda family: family.name)
def family(request: pytest.FixtureRequest) -> Family:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def tokenizers(family: Family, demo_target: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The demo target's tokenizer with the family's special tokens, its template with marks and without."""
    tokenizer = AutoTokenizer.from_pretrained(demo_target)
    tokenizer.add_special_tokens({"additional_special_tokens": list(family.specials)})
    tokenizer.bos_token = tokenizer.eos_token = family.specials[0]
    found = {}
    for name in ("marked", "unmarked"):
        plain = re.sub(r"\{% (end)?generation %\}", "", family.template)
        tokenizer.chat_template = family.template if name == "marked" else plain
        folder = tmp_path_factory.mktemp(name)
        tokenizer.save_pretrained(folder)
        stops = [tokenizer.convert_tokens_to_ids(token) for token in family.stops]
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stops}))
        found[name] = AutoTokenizer.from_pretrained(folder)
    return found


def stretches(tokenizer: Any, samples: list[Encoded]) -> list[tuple[str, str]]:
    """Each stretch of trained tokens as text, behind the text before it."""
    found = []
    for sample in samples:
        edges = [at for at, pair in enumerate(pairwise([0, *sample.loss_mask, 0])) if pair[0] != pair[1]]
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            parts = sample.input_ids[:start], sample.input_ids[start:stop]
            before, written = (tokenizer.decode(part, clean_up_tokenization_spaces=False) for part in parts)
            found.append((before, written))
    return found


def filled(value: Any, marks: str) -> Any:
    return json.loads(json.dumps(value).replace("{marks}", json.dumps(marks)[1:-1]))


@pytest.mark.parametrize("form", ["marked", "unmarked"])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_trained_is_what_the_target_writes(family: Family, tokenizers: dict[str, Any], name: str, form: str) -> None:
    tokenizer = tokenizers[form]
    messages = filled(CONVERSATIONS[name], " ".join(family.specials[-2:]))
    conversation = Conversation(name, messages, tools=TOOLS if name == "tools" else None)
    encoder = Encoder(tokenizer, Settings(max_seq_len=100_000))
    if reason := family.rejected.get(name):
        with pytest.raises(Rejection) as rejection:
            encoder.encode(conversation)
        assert rejection.value.reason == reason
        return
    samples = encoder.encode(conversation)
    wrote = [family.wrote(message) for message in messages if message["role"] == "assistant"]
    assert Counter(written for _, written in stretches(tokenizer, samples)) == Counter(wrote)
    assert not any(sample.straddling for sample in samples)


def test_both_methods_give_the_same_samples(family: Family, tokenizers: dict[str, Any]) -> None:
    encoders = [Encoder(tokenizers[form], Settings(max_seq_len=100_000)) for form in ("marked", "unmarked")]
    for name, messages in CONVERSATIONS.items():
        if name not in family.rejected:
            marked, unmarked = (encoder.encode(Conversation(name, messages)) for encoder in encoders)
            assert marked == unmarked


def test_what_a_sample_shows_before_an_answer_is_what_the_target_was_given(
    family: Family, tokenizers: dict[str, Any]
) -> None:
    """The serving side's own call for the same prompt."""
    tokenizer = tokenizers["unmarked"]
    messages, encoder = CONVERSATIONS["multi-turn"], Encoder(tokenizer, Settings(max_seq_len=100_000))
    if "multi-turn" in family.rejected:  # it shows no answer as it was written
        with pytest.raises(Rejection):
            encoder.encode(Conversation(None, messages))
        return
    samples = encoder.encode(Conversation(None, messages))
    found = stretches(tokenizer, samples)
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            served = [
                tokenizer.apply_chat_template(
                    messages[:number], add_generation_prompt=True, tokenize=False, strftime_now=MOMENT, **variables
                )
                for variables in ({}, {"enable_thinking": False})
            ]
            assert any((prompt, family.wrote(message)) in found for prompt in served)


def test_an_answer_that_nothing_follows_is_not_rewritten(family: Family, tokenizers: dict[str, Any]) -> None:
    if "single" not in family.rejected:
        [sample] = Encoder(tokenizers["unmarked"], Settings()).encode(Conversation(None, CONVERSATIONS["single"]))
        assert not sample.rewritten
