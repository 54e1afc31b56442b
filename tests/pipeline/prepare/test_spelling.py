"""Masks by what tokens spell are the masks by offsets, and are not given where tokens do not spell the text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from pipeline.prepare.conversation import parse
from pipeline.prepare.mask import mask, masks
from pipeline.prepare.spelling import Spelling, spelling
from pipeline.prepare.template import Rendered, Template
from tests.pipeline.prepare.conftest import talk
from tests.pipeline.prepare.test_mask import EXAMPLES

MARKS = ("<|im_start|>", "<|im_end|>")


@pytest.fixture
def spelled(tokenizer: Any) -> Spelling:
    found = spelling(tokenizer)
    assert found is not None
    return found


def test_the_demo_target_spells_its_examples(tokenizer: Any, spelled: Spelling) -> None:
    texts = [Template(tokenizer).render(parse(line).messages) for line in EXAMPLES]
    by_offsets = [mask(tokenizer, text) for text in texts]
    found = list(spelled.masks(texts))
    # Where a border lies inside a token, that must be counted.
    assert [one is None for one in found] == [one.straddling > 0 for one in by_offsets]
    assert [one for one in found if one] == [one for one in by_offsets if not one.straddling]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.text() | st.sampled_from([*MARKS, "\n", " ", "🦅", "e\u0301", "中文"]), min_size=1), st.data())
def test_masks_are_those_by_offsets(tokenizer: Any, spelled: Spelling, parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    places = st.lists(st.integers(0, len(text)), max_size=4).map(sorted)
    borders = data.draw(places)
    rendered = Rendered(text, [(a, b) for a, b in zip(borders[::2], borders[1::2], strict=False) if a < b])
    [found] = spelled.masks([rendered])
    assert found in (None, mask(tokenizer, rendered))


def test_special_tokens_are_special_whatever_was_called_before(tokenizer: Any, spelled: Spelling) -> None:
    rendered = Template(tokenizer).render(talk("Hi", "Hello"))
    expected = mask(tokenizer, rendered)
    tokenizer("<|im_end|>", split_special_tokens=True)
    assert list(spelled.masks([rendered])) == [expected]


def test_a_limit_in_the_tokenizers_file_cuts_nothing(tokenizer: Any, spelled: Spelling) -> None:
    rendered = Template(tokenizer).render(talk("Hi", "Hello"))
    expected = mask(tokenizer, rendered)
    tokenizer.backend_tokenizer.enable_truncation(3)
    tokenizer.backend_tokenizer.enable_padding(length=100)
    assert list(spelled.masks([rendered])) == [expected]


def by_bytes(*added: AddedToken, vocabulary: str = "abĠ") -> PreTrainedTokenizerFast:
    """A byte-level tokenizer of few bytes."""
    backend = Tokenizer(models.BPE({char: place for place, char in enumerate(vocabulary)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(added))
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def test_tokens_and_mask_worked_out_by_hand() -> None:
    tokenizer = by_bytes(AddedToken("</s>"))
    rendered = Rendered("ab a</s>b", [(3, 8)])
    expected = ([0, 1, 2, 0, 3, 1], [0, 0, 0, 1, 1, 0])
    [found] = Spelling(tokenizer).masks([rendered])
    assert found is not None
    assert (found.input_ids, found.loss_mask, found.straddling) == (*expected, 0)


@pytest.mark.parametrize(
    ("tokenizer", "text"),
    [
        (by_bytes(AddedToken("</s>", rstrip=True)), "a b</s>  a"),  # the token has white space in it
        (by_bytes(), "abca"),  # no token for c
    ],
    ids=["swallowed", "lost"],
)
def test_a_text_that_is_not_spelled_gets_its_mask_by_offsets(tokenizer: Any, text: str) -> None:
    rendered = Rendered(text, [(1, len(text) - 1)])
    assert list(Spelling(tokenizer).masks([rendered])) == [None]
    assert masks(tokenizer, [rendered], Spelling(tokenizer)) == [mask(tokenizer, rendered)]


def test_a_vocabulary_of_words_has_no_spelling() -> None:
    backend = Tokenizer(models.WordLevel({"a": 0}))
    backend.decoder = decoders.Metaspace()
    assert spelling(PreTrainedTokenizerFast(tokenizer_object=backend)) is None
