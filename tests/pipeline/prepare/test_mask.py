from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from pipeline.prepare import mask as mask_module
from pipeline.prepare.conversation import parse
from pipeline.prepare.mask import Masked, mask
from pipeline.prepare.rejection import Rejection
from pipeline.prepare.template import Rendered, Template
from tests.pipeline.conftest import CHECKOUT
from tests.pipeline.prepare.conftest import talk
from tests.pipeline.prepare.templates import CHATML

EXAMPLES = (CHECKOUT / "examples" / "conversations.jsonl").read_bytes().splitlines()
Make = Callable[..., Masked]
Trained = Callable[[Masked], str]


def test_mask_worked_out_by_hand(masked: Make) -> None:
    sample = masked(talk("Hello", "Hello"), CHATML)
    # <|im_start|> user \n Hello <|im_end|> \n  <|im_start|> ass istant \n  Hello <|im_end|>  \n
    assert sample.input_ids == [1, 4093, 198, 19556, 2, 198, 1, 520, 9531, 198, 19556, 2, 198]
    assert sample.loss_mask == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0]


@pytest.mark.parametrize("line", EXAMPLES, ids=lambda line: json.loads(line).get("id", "no-id"))
def test_trained_tokens_of_every_example_are_its_answers_and_ends_of_turn(
    line: bytes, masked: Make, trained: Trained
) -> None:
    messages = parse(line).messages
    sample = masked(messages)
    answers = "".join(message["content"] + "<|im_end|>" for message in messages if message["role"] == "assistant")
    # One example begins with white space, part of which the tokenizer joins to the header's newline.
    assert trained(sample) == (answers.removeprefix("   ") if sample.straddling else answers)
    assert len(sample.input_ids) == len(sample.loss_mask)


def test_token_across_the_border_is_not_trained_and_is_counted(masked: Make, trained: Trained) -> None:
    sample = masked(talk("A poem", "    indented"), CHATML)
    # The header's newline and three of the four spaces are one token, 472.
    assert sample.loss_mask[sample.input_ids.index(472)] == 0
    assert sample.straddling == 1
    assert trained(sample) == " indented<|im_end|>"


def test_mask_by_offsets_is_the_mask_by_prefixes(tokenizer: Any) -> None:
    template = Template(tokenizer)
    for line in EXAMPLES:
        rendered = template.render(parse(line).messages)
        by_offsets = mask(tokenizer, rendered)
        if not by_offsets.straddling:
            assert mask_module._by_prefixes(tokenizer, rendered) == by_offsets


def test_without_offsets_a_border_inside_a_token_rejects_the_row(tokenizer: Any) -> None:
    tokenizer.chat_template = CHATML
    rendered = Template(tokenizer).render(talk("A poem", "    indented"))
    with pytest.raises(Rejection, match="border-inside-token"):
        mask_module._by_prefixes(tokenizer, rendered)


def test_tokenizer_without_offsets_is_masked_byte_for_byte() -> None:
    # ByT5's tokens are bytes plus 3, `</s>` is 1; transformers has it only as a slow tokenizer.
    tokenizer = ByT5Tokenizer()
    assert not tokenizer.is_fast
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message['role'] }}:{{ message['content'] }}</s>{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    sample = mask(tokenizer, Template(tokenizer).render(talk("ü", "né", "x", "y")))
    head, middle = "user:ü", "user:x"
    expected = [(0, head), (0, None), (0, "assistant:"), (1, "né"), (1, None)]
    expected += [(0, middle), (0, None), (0, "assistant:"), (1, "y"), (1, None)]
    ids = [[1] if text is None else [byte + 3 for byte in text.encode()] for _, text in expected]
    assert sample.input_ids == [number for part in ids for number in part]
    ones = [[one] * len(part) for (one, _), part in zip(expected, ids, strict=True)]
    assert sample.loss_mask == [one for part in ones for one in part]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(talks=st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), min_size=1, max_size=3))
def test_mask_by_borders_is_the_mask_by_offsets(tokenizer: Any, talks: list[tuple[str, str]]) -> None:
    tokenizer.chat_template = CHATML
    try:
        rendered = Template(tokenizer).render(talk(*(text for pair in talks for text in pair)))
    except Rejection:
        return
    [encoding] = tokenizer([rendered.text], add_special_tokens=False).encodings
    by_offsets = mask_module._by_offsets(encoding.ids, encoding.offsets, rendered.text, rendered.answers)
    by_borders = mask_module._by_borders(encoding, rendered.answers)
    assert by_borders in (None, by_offsets) if by_offsets.straddling == 0 else by_borders is None
    plain = "".join(text for pair in talks for text in pair)
    assert by_borders or by_offsets.straddling or not plain.isascii() or not plain.isprintable()


def words(trim: bool, swallow: bool = False) -> PreTrainedTokenizerFast:
    """A word-level tokenizer in which a space belongs to the word behind it."""
    vocabulary = {word: number for number, word in enumerate(["?", "Ġhi", "hi", "ask:", "Ġsay:", "Ġyes", "Ċ"])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))  # noqa: S106
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "merged_with_next"), byte_level])
    backend.post_processor = processors.ByteLevel(trim_offsets=trim)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?")  # noqa: S106
    tokenizer.add_special_tokens({"eos_token": AddedToken("</s>", rstrip=swallow, special=True)})
    return tokenizer


@pytest.mark.parametrize("trim", [True, False])
def test_space_in_front_of_an_answer_belongs_to_its_first_word(trim: bool) -> None:
    text = "ask: hi say: yes</s>"
    # The prompt ends with the space, so the token for ` yes` reaches across the border, told by its offsets or not.
    sample = mask(words(trim), Rendered(text, [(text.index("yes"), len(text))]))
    assert sample.loss_mask == [0, 0, 0, 0, 1]
    assert sample.straddling == 1
    # If the answer begins with the space, the token is the answer's.
    sample = mask(words(trim), Rendered(text, [(text.index(" yes"), len(text))]))
    assert sample.loss_mask == [0, 0, 0, 1, 1]
    assert sample.straddling == 0


def test_end_of_turn_that_swallows_white_space_is_trained() -> None:
    text = "ask: hi say: yes</s>\n\n"
    sample = mask(words(trim=False, swallow=True), Rendered(text, [(text.index(" yes"), text.index("\n"))]))
    assert sample.loss_mask == [0, 0, 0, 1, 1]
    assert sample.straddling == 0


def test_bytes_of_one_character_are_masked_together(masked: Make, trained: Trained) -> None:
    sample = masked(talk("🦅", "🦅🦉"), CHATML)
    assert trained(sample) == "🦅🦉<|im_end|>"
    assert sum(sample.loss_mask) > 3, "a character of several tokens was expected"
