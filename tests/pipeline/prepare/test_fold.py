"""A template said to be a fold gives the texts that rendering each gives; one that looks ahead is not said so."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.prepare.fold import Fold
from pipeline.prepare.rejection import Rejection
from pipeline.prepare.rendering import Rendering
from tests.pipeline.prepare.families import FAMILIES
from tests.pipeline.prepare.test_families import CONVERSATIONS, TOOLS

ASK = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
HEADER = "<|im_start|>{{ m.role }}\n"
TURN = HEADER + "{{ m.content }}<|im_end|>\n"
FOLDS = {
    "the plainest": "{% for m in messages %}" + TURN + "{% endfor %}" + ASK,
    "first": "{% for m in messages %}{% if loop.first and messages[0].role != 'system' %}S{% endif %}"
    + TURN
    + "{% endfor %}"
    + ASK,
    "system before": "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}" + TURN + "{% endfor %}" + ASK,
    "another name": "{% set talk = messages %}{% for m in talk %}" + TURN + "{% endfor %}" + ASK,
    "memory": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n }}"
    + TURN
    + "{% endfor %}"
    + ASK,
    "the one before": "{% for m in messages %}{{ loop.previtem.role if loop.previtem else '' }}"
    + TURN
    + "{% endfor %}"
    + ASK,
    "a loop within": "{% for m in messages %}{% for call in m.tool_calls or [] %}{{ call.function.name }}"
    "{% if not loop.last %}, {% endif %}{% endfor %}" + TURN + "{% endfor %}" + ASK,
    "closing": "{% for m in messages %}"
    + TURN
    + "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% else %}{{ eos_token }}{% endif %}\n",
    "macro": "{% macro say(m) %}" + TURN + "{% endmacro %}{% for m in messages %}{{ say(m) }}{% endfor %}" + ASK,
}
NO_FOLDS = {
    "last": "{% for m in messages %}" + TURN + "{% if loop.last %}.{% endif %}{% endfor %}" + ASK,
    "last by key": "{% for m in messages %}" + TURN + "{% if loop['last'] %}.{% endif %}{% endfor %}" + ASK,
    "last by filter": "{% for m in messages %}" + TURN + "{% if loop | attr('last') %}.{% endif %}{% endfor %}" + ASK,
    "another's last": "{% for m in messages %}{% set l = loop %}{% for x in 'a' %}{{ l.last }}{% endfor %}"
    + TURN
    + "{% endfor %}"
    + ASK,
    "next": "{% for m in messages %}" + TURN + "{{ loop.nextitem is defined }}{% endfor %}" + ASK,
    "how many": "{% for m in messages %}" + TURN + "{{ loop.length }}{% endfor %}" + ASK,
    "how many left": "{% for m in messages %}" + TURN + "{{ loop.revindex }}{% endfor %}" + ASK,
    "length": "{{ messages | length }}{% for m in messages %}" + TURN + "{% endfor %}" + ASK,
    "last message": "{{ messages[-1].role }}{% for m in messages %}" + TURN + "{% endfor %}" + ASK,
    "second message": "{{ messages[1].role if messages | length > 1 }}{% for m in messages %}"
    + TURN
    + "{% endfor %}"
    + ASK,
    "looks at itself": "{% for m in messages %}" + TURN + "{{ m == messages[-1] }}{% endfor %}" + ASK,
    "asked inside": "{% for m in messages %}" + TURN + "{{ add_generation_prompt }}{% endfor %}" + ASK,
    "asked before": "{{ add_generation_prompt }}{% for m in messages %}" + TURN + "{% endfor %}" + ASK,
    "chosen": "{% for m in messages if m.role != 'system' %}" + TURN + "{% endfor %}" + ASK,
    "a slice": "{% for m in messages[1:] %}" + TURN + "{% endfor %}" + ASK,
    "reversed": "{% for m in messages | reverse %}" + TURN + "{% endfor %}" + ASK,
    "renamed": "{% set messages = messages[1:] %}{% for m in messages %}" + TURN + "{% endfor %}" + ASK,
    "a name for two": "{% set talk = messages %}{% if tools %}{% set talk = messages[1:] %}{% endif %}"
    + "{% for m in talk %}"
    + TURN
    + "{% endfor %}"
    + ASK,
    "stops": "{% for m in messages %}" + TURN + "{% if m.role == 'tool' %}{% break %}{% endif %}{% endfor %}" + ASK,
    "twice": "{% for m in messages %}" + TURN + "{% endfor %}{% for m in messages %}" + TURN + "{% endfor %}" + ASK,
    "behind": "{% for m in messages %}" + TURN + "{% endfor %}{{ messages[0].role }}" + ASK,
    "remembered behind": "{% set ns = namespace(r='') %}{% for m in messages %}{% set ns.r = m.role %}"
    + TURN
    + "{% endfor %}{% if ns.r != 'tool' %}"
    + ASK
    + "{% endif %}",
    "tools behind": "{% for m in messages %}" + TURN + "{% endfor %}{% if tools %}T{% endif %}" + ASK,
    "else": "{% for m in messages %}" + TURN + "{% else %}nothing{% endfor %}" + ASK,
    "last by the other name": "{% set talk = messages %}{{ talk | length }}{% for m in talk %}"
    + TURN
    + "{% endfor %}"
    + ASK,
    "all of them for each": "{% for m in messages %}"
    + TURN
    + "{% for x in messages %}{{ x.role }}{% endfor %}{% endfor %}"
    + ASK,
    "all or none": "{% for m in messages if messages[-1].role != 'tool' %}" + TURN + "{% endfor %}" + ASK,
    "as many others": "{% set talk = messages %}"
    + "{% if messages[0].role == 'system' %}{% set talk = [messages[0]] * 5 %}{% endif %}{% for m in talk %}"
    + TURN
    + "{% endfor %}"
    + ASK,
    "under their name": "{% if messages[0].role == 'system' %}{% set messages = [messages[0]] * 5 %}{% endif %}"
    + "{% for m in messages %}"
    + TURN
    + "{% endfor %}"
    + ASK,
    "a row's behind": "{% set r = messages[0].role %}{% for m in messages %}" + TURN + "{% endfor %}{{ r }}" + ASK,
    "by chance": "{% for m in messages %}" + TURN + "{% endfor %}{% if false %}{{ [1, 2] | random }}{% endif %}" + ASK,
    "around": "{% if true %}{% for m in messages %}" + TURN + "{% endfor %}{% endif %}" + ASK,
}


class Tokenizer:
    """As much of one as a template needs."""

    name_or_path = "a tokenizer"
    special_tokens_map = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}  # noqa: RUF012
    all_special_tokens = ["<|im_start|>", "<|im_end|>"]  # noqa: RUF012
    added_tokens_decoder: dict[int, Any] = {}  # noqa: RUF012

    def __init__(self, template: str) -> None:
        self._template = template

    def get_chat_template(self) -> str:
        return self._template


def rendering(template: str) -> Rendering:
    return Rendering(Tokenizer(template), date(2026, 1, 1))


def is_fold(template: str) -> bool:
    return isinstance(rendering(template).talk(CONVERSATIONS["system"], None), Fold)


def check(template: str, messages: list[dict[str, Any]], tools: Any) -> None:
    """Each text of the first messages is what the template gives for these messages alone."""
    rendered = rendering(template)
    try:
        talk = rendered.talk(messages, tools)
    except Rejection:
        with pytest.raises(Rejection):
            rendered.text(messages, tools)
        return
    for count in range(1, len(messages) + 1):
        try:
            each = rendered.text(messages[:count], tools), rendered.prompts(messages[:count], tools)
        except Rejection:
            assert not isinstance(talk, Fold)
            continue
        assert (talk.text(count), talk.prompts(count)) == each


@pytest.mark.parametrize("name", FOLDS)
def test_folds_are_seen(name: str) -> None:
    assert is_fold(FOLDS[name])


@pytest.mark.parametrize("name", NO_FOLDS)
def test_what_looks_ahead_is_no_fold(name: str) -> None:
    assert not is_fold(NO_FOLDS[name])


TEMPLATES = FOLDS | NO_FOLDS | {family.name: family.template for family in FAMILIES}


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_texts_are_those_of_the_first_messages_alone(name: str, tools: Any) -> None:
    for talk, messages in CONVERSATIONS.items():
        check(TEMPLATES[name], messages[:20] if talk == "200 turns" else messages, tools)


PARTS = (
    *("{{ m.content }}", "{{ loop.first }}", "{{ loop.last }}", "{{ loop.index }}", "{{ loop.length }}", "{{ tools }}"),
    *("{{ messages[0].role }}", "{{ messages[-1].role }}", "{{ ns.r }}", "{% set ns.r = m.role %}", "{{ eos_token }}"),
    *(
        "{% break %}",
        "{% continue %}",
        "{% set n = messages %}",
        "{{ n | length }}",
        "{% set l = loop %}",
        "{{ l.last }}",
    ),
    *("{% set messages = messages[:1] %}", "{{ ask }}", "{% set ask = add_generation_prompt %}", "{{ f(m) }}", "\n"),
)
AROUND = (
    *("{% if loop.last %}@{% endif %}", "{% if m.role == 'user' %}@{% endif %}", "{% for x in [1, 2] %}@{% endfor %}"),
    *("{% if add_generation_prompt %}@{% endif %}", "{% if ns.r %}@{% endif %}", "{% for y in n %}@{% endfor %}"),
    *("{% macro f(m) %}@{% endmacro %}", "{% filter upper %}@{% endfilter %}", "{% set kept %}@{% endset %}{{ kept }}"),
)
BODIES = st.recursive(
    st.sampled_from(PARTS),
    lambda inside: st.builds(
        lambda around, parts: around.replace("@", "".join(parts)), st.sampled_from(AROUND), st.lists(inside, max_size=3)
    ),
    max_leaves=5,
)


HARMLESS = st.sampled_from(("{{ m.content }}", "{{ loop.first }}", "{{ loop.index }}", "{% set ns.r = m.role %}", "\n"))
INSIDE = st.builds("".join, st.lists(HARMLESS | HARMLESS | BODIES, max_size=3))
OUTSIDE = st.just("") | st.just("\n") | BODIES


@given(OUTSIDE, INSIDE, OUTSIDE)
def test_whatever_a_template_is_made_of_its_texts_are_the_same(before: str, body: str, behind: str) -> None:
    template = "{% set ns = namespace(r='') %}" + before + "{% for m in messages %}" + body + "{% endfor %}" + behind
    check(template + ASK, CONVERSATIONS["tools"], TOOLS)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("mark", ["\U0010ffff", "\U0010fffe"])
def test_a_message_that_has_the_marks_is_rendered_without(mark: str, place: int) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    messages[place]["content"] += f"{mark}c"
    template = FOLDS["the plainest"]
    assert not isinstance(rendering(template).talk(messages, None), Fold)
    check(template, messages, None)
