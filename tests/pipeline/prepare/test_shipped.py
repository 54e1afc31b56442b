"""Tokenizers of large targets as they are published, with their own chat templates, in full: the same table as for
templates in their manner."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from pipeline.prepare.conversation import Conversation
from pipeline.prepare.encode import Encoded, Encoder, Settings
from pipeline.prepare.mask import masks
from pipeline.prepare.rejection import Rejection
from pipeline.prepare.rendering import Rendering
from pipeline.prepare.settings import DAY
from pipeline.prepare.spelling import spelling
from pipeline.prepare.template import Template
from tests.pipeline.prepare.families import DEEPSEEK_V3, GEMMA, LLAMA, NO_THOUGHTS, NO_TOOLS, QWEN, Message, Wrote
from tests.pipeline.prepare.test_families import CONVERSATIONS, MOMENT, TOOLS, filled, stretches


@dataclass(frozen=True)
class Shipped:
    """What is published for one target.

    Attributes:
        end: the token that ends its turns.
        wrote: what it writes for an assistant's message.
        rejected: conversations that its template cannot show for certain, with the reason.
        composes: its tokenizer brings text to Unicode's form NFC, in which letter and accent are one character.
    """

    end: str
    wrote: Wrote
    rejected: dict[str, str] = field(default_factory=dict)
    composes: bool = False


ALTERNATE = {"assistant first": "template-refused", "two users": "template-refused", "tools": "template-refused"}
SHIPPED = {
    "tokenizer-llama3_2": Shipped("<|eot_id|>", LLAMA.wrote, NO_THOUGHTS | {"assistant first": "assistant-first"}),
    "tokenizer-qwen3": Shipped("<|im_end|>", QWEN.wrote, {"assistant first": "assistant-first"}, composes=True),
    "tokenizer-gemma3": Shipped("<end_of_turn>", GEMMA.wrote, ALTERNATE | NO_THOUGHTS),
    # A call is shown where a message has no content at all, and ours has an empty one, as in serving.
    "tokenizer-deepseek_v3": Shipped("<｜end▁of▁sentence｜>", DEEPSEEK_V3.wrote, NO_TOOLS | NO_THOUGHTS),
    # The system prompt stands before a question that nothing follows, and nowhere once it is answered.
    "tokenizer-mistral_nemo": Shipped(
        "</s>",
        lambda message: str(message["content"]) + "</s>",
        ALTERNATE | NO_THOUGHTS | {"system": "template-changes-text"},
    ),
}


@pytest.fixture(scope="session", params=SHIPPED)
def name(request: pytest.FixtureRequest) -> str:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def tokenizer(name: str) -> Any:
    folder = os.environ.get("EYAS_TOKENIZERS")
    if not folder:
        why = os.environ.get("EYAS_NO_TOKENIZERS", "EYAS_TOKENIZERS names no folder of tokenizers: run ./eyas test")
        if os.environ.get("EYAS_CI", "0") not in {"", "0"}:
            pytest.fail(why)
        pytest.skip(why)
    return AutoTokenizer.from_pretrained(Path(folder) / name / "models", local_files_only=True)


def encoded(tokenizer: Any, talk: str, messages: list[Message]) -> list[Encoded]:
    encoder = Encoder(tokenizer, Settings(max_seq_len=100_000))
    return encoder.encode(Conversation(talk, messages, tools=TOOLS if talk == "tools" else None))


@pytest.mark.parametrize("talk", CONVERSATIONS)
def test_trained_is_what_the_target_writes(name: str, tokenizer: Any, talk: str) -> None:
    shipped = SHIPPED[name]
    messages = filled(CONVERSATIONS[talk], shipped.end)
    if reason := shipped.rejected.get(talk):
        with pytest.raises(Rejection) as rejection:
            encoded(tokenizer, talk, messages)
        assert rejection.value.reason == reason
        return
    samples = encoded(tokenizer, talk, messages)
    wrote = [shipped.wrote(message) for message in messages if message["role"] == "assistant"]
    if shipped.composes:
        wrote = [unicodedata.normalize("NFC", written) for written in wrote]
    assert Counter(written for _, written in stretches(tokenizer, samples)) == Counter(wrote)
    assert not any(sample.straddling for sample in samples)


@pytest.mark.parametrize("talk", ["multi-turn", "unicode", "right to left", "200 turns"])
def test_tokens_before_an_answer_are_those_that_ask_for_it(tokenizer: Any, talk: str) -> None:
    """By the serving side's own call."""
    messages = CONVERSATIONS[talk][:24]
    samples = encoded(tokenizer, talk, messages)
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            served = [
                tokenizer.apply_chat_template(
                    messages[:number], add_generation_prompt=True, return_dict=False, strftime_now=MOMENT, **variables
                )
                for variables in ({}, {"enable_thinking": False})
            ]
            assert any(is_asked(sample, prompt) for sample in samples for prompt in served)


def is_asked(sample: Encoded, prompt: list[int]) -> bool:
    """Whether a trained stretch begins just behind a prompt."""
    end = len(prompt)
    return sample.input_ids[:end] == prompt and sample.loss_mask[end - 1 : end + 1] == [0, 1]


def test_text_like_special_tokens_adds_none(name: str, tokenizer: Any) -> None:
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    counts = []
    for filling in (SHIPPED[name].end, "x"):
        samples = encoded(tokenizer, "markers", filled(CONVERSATIONS["markers"], filling))
        counts.append([sum(token in special for token in sample.input_ids) for sample in samples])
    assert counts[0] == counts[1]


def test_texts_of_first_messages_are_what_each_is_by_itself(tokenizer: Any) -> None:
    rendering = Rendering(tokenizer, DAY)
    messages = CONVERSATIONS["200 turns"][:12]
    talk = rendering.talk(messages, None)
    for count in range(1, len(messages) + 1):
        first = messages[:count]
        assert talk.prompts(count) == rendering.prompts(first, None)
        assert talk.text(count) == rendering.text(first)


def test_masks_by_spelling_are_those_by_offsets(name: str, tokenizer: Any) -> None:
    spelled, template = spelling(tokenizer), Template(tokenizer)
    assert (spelled is None) == (name == "tokenizer-gemma3")  # the only one whose vocabulary is no byte-level one
    for talk in ("multi-turn", "unicode", "right to left", "200 turns"):
        texts = template.texts(CONVERSATIONS[talk])
        assert masks(tokenizer, texts, spelled) == masks(tokenizer, texts)
