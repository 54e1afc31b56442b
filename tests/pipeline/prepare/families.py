"""Chat templates in the manner of ten families, written for the tests, and what each target writes for a message.

`wrote` is the independent side of the table: the tokens a target of the family produces for an assistant's message,
its end-of-turn token last, by the family's own description and not by any template.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
Wrote = Callable[[Message], str]


@dataclass(frozen=True)
class Family:
    """One family.

    Attributes:
        name: of it.
        template: with {% generation %} around what the target writes; the table is run with and without.
        specials: its special tokens, the begin of text first if it has one.
        wrote: what the target writes for an assistant's message.
        rejected: conversations of the table that this family's template cannot show for certain, with the reason.
        stops: tokens in the target's generation settings that end its turn.
    """

    name: str
    template: str
    specials: tuple[str, ...]
    wrote: Wrote
    rejected: Mapping[str, str] = field(default_factory=dict)
    stops: tuple[str, ...] = ()


def _text(message: Message) -> str:
    return str(message.get("content") or "")


def _calls(message: Message) -> list[Message]:
    return [call["function"] for call in message.get("tool_calls") or []]


def _thought(message: Message) -> str:
    return str(message.get("reasoning_content") or "")


NO_TOOLS = {"tools": "template-changes-text"}
NO_THOUGHTS = {"reasoning": "template-changes-text"}
MUST_ALTERNATE = {"assistant first": "template-refused", "two users": "template-refused"}

CHATML = Family(
    "ChatML",
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    ("<|im_start|>", "<|im_end|>"),
    lambda m: _text(m) + "<|im_end|>",
    NO_TOOLS | NO_THOUGHTS,
)

LLAMA = Family(
    "Llama-3",
    "{{ bos_token }}<|start_header_id|>system<|end_header_id|>\n\nToday Date: {{ strftime_now('%d %b %Y') }}\n\n"
    "{% if messages and messages[0].role == 'system' %}{{ messages[0].content | trim }}{% endif %}<|eot_id|>"
    "{% for m in messages if m.role != 'system' %}"
    "{% if m.role == 'assistant' %}<|start_header_id|>assistant<|end_header_id|>\n\n{% generation %}"
    "{% if m.tool_calls %}{% set f = m.tool_calls[0].function %}"
    '{{ \'{"name": "\' + f.name + \'", "parameters": \' }}{{ f.arguments | tojson }}{{ "}" }}'
    "{% else %}{{ m.content | trim }}{% endif %}<|eot_id|>{% endgeneration %}"
    "{% elif m.role == 'tool' %}<|start_header_id|>ipython<|end_header_id|>\n\n{{ m.content }}<|eot_id|>"
    "{% else %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{% if tools and loop.first %}{% for t in tools %}{{ t | tojson }}\n\n{% endfor %}{% endif %}"
    "{{ m.content | trim }}<|eot_id|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    lambda m: (
        ("".join(json.dumps({"name": f["name"], "parameters": f["arguments"]}) for f in _calls(m)) or _text(m).strip())
        + "<|eot_id|>"
    ),
    NO_THOUGHTS,
)

# The system prompt stands in the newest user turn: every turn is given another text than it is in later.
MISTRAL = Family(
    "Mistral",
    "{% if messages and messages[0].role == 'system' %}{% set s = messages[0].content + '\n\n' %}"
    "{% set talk = messages[1:] %}{% else %}{% set s = '' %}{% set talk = messages %}{% endif %}"
    "{% set last = (talk | selectattr('role', 'equalto', 'user') | list | last).content %}"
    "{{ bos_token }}{% for m in talk %}"
    "{% if m.role in ('user', 'assistant') and (m.role == 'user') != (loop.index0 % 2 == 0) and not tools %}"
    "{{ raise_exception('roles must alternate user and assistant') }}{% endif %}"
    "{% if m.role == 'user' %}[INST]{{ ' ' + (s if m.content == last else '') + m.content }}[/INST]"
    "{% elif m.role == 'tool' %}[TOOL_RESULTS] {{ m.content }}[/TOOL_RESULTS]"
    "{% elif m.tool_calls %}{% generation %}[TOOL_CALLS] [{% for c in m.tool_calls %}"
    '{{ \'{"name": "\' + c.function.name + \'", "arguments": \' }}{{ c.function.arguments | tojson }}{{ "}" }}'
    "{% endfor %}]</s>{% endgeneration %}"
    "{% else %}{% generation %}{{ ' ' + m.content }}</s>{% endgeneration %}{% endif %}{% endfor %}",
    ("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    lambda m: (
        "[TOOL_CALLS] ["
        + "".join(json.dumps({"name": f["name"], "arguments": f["arguments"]}) for f in _calls(m))
        + "]</s>"
        if _calls(m)
        else " " + _text(m) + "</s>"
    ),
    MUST_ALTERNATE | NO_THOUGHTS,
)

GEMMA = Family(
    "Gemma",
    "{{ bos_token }}{% if messages and messages[0].role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "{% if m.role == 'assistant' %}<start_of_turn>model\n"
    "{% generation %}{{ m.content | trim }}<end_of_turn>{% endgeneration %}{{ '\n' }}"
    "{% else %}<start_of_turn>{{ m.role }}\n{{ m.content | trim }}<end_of_turn>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
    ("<bos>", "<start_of_turn>", "<end_of_turn>"),
    lambda m: _text(m).strip() + "<end_of_turn>",
    MUST_ALTERNATE | NO_THOUGHTS | {"system": "template-refused", "tools": "template-refused"},
)

DEEPSEEK_V3 = Family(
    "DeepSeek-V3",
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% endif %}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'user' %}<｜User｜>{{ m.content }}"
    "{% elif m.role == 'tool' %}<｜tool▁outputs▁begin｜>{{ m.content }}<｜tool▁outputs▁end｜>"
    "{% elif m.role == 'assistant' %}{% if not (loop.previtem and loop.previtem.role == 'tool') %}"
    "<｜Assistant｜>{% endif %}{% generation %}{{ m.content or '' }}"
    "{% if m.tool_calls %}<｜tool▁calls▁begin｜>{% for c in m.tool_calls %}{{ c.function.name }}\n"
    "{{ c.function.arguments | tojson }}{% endfor %}<｜tool▁calls▁end｜>{% endif %}"
    "<｜end▁of▁sentence｜>{% endgeneration %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt and not (messages and messages[-1].role == 'tool') %}<｜Assistant｜>{% endif %}",
    (
        *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
        *("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ),
    lambda m: (
        _text(m)
        + (
            "<｜tool▁calls▁begin｜>"
            + "".join(f["name"] + "\n" + json.dumps(f["arguments"]) for f in _calls(m))
            + "<｜tool▁calls▁end｜>"
            if _calls(m)
            else ""
        )
        + "<｜end▁of▁sentence｜>"
    ),
    NO_THOUGHTS,
)

# Asks with an open thought, and never shows one: no rendering says what the target wrote.
_R1_HIDES = "answer-not-behind-prompt"
DEEPSEEK_R1 = Family(
    "DeepSeek-R1",
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}<｜Assistant｜>{% generation %}"
    "{{ m.content.split('</think>')[-1] }}<｜end▁of▁sentence｜>{% endgeneration %}"
    "{% elif m.role == 'user' %}<｜User｜>{{ m.content }}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜><think>\n{% endif %}",
    DEEPSEEK_V3.specials,
    lambda m: _text(m) + "<｜end▁of▁sentence｜>",
    dict.fromkeys(
        (
            *("single", "multi-turn", "system", "two users", "empty answer", "unicode", "right to left", "markers"),
            *("tools", "reasoning", "200 turns", "assistant first"),
        ),
        _R1_HIDES,
    ),
)


def _qwen(message: Message) -> str:
    thought = f"<think>\n{_thought(message).strip()}\n</think>\n\n" if _thought(message) else ""
    calls = "".join(
        "\n<tool_call>\n" + json.dumps({"name": f["name"], "arguments": f["arguments"]}) + "\n</tool_call>"
        for f in _calls(message)
    )
    body = _text(message).lstrip("\n")
    return thought + (body + calls if body else calls.removeprefix("\n")) + "<|im_end|>"


# Thoughts are shown behind the newest question alone; an answer without one has an empty thought, which is given.
QWEN = Family(
    "Qwen3",
    "{% if tools %}<|im_start|>system\n{% if messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}"
    "# Tools\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n"
    "{% elif messages and messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n"
    "{% endif %}{% set ns = namespace(q=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.q = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'user' or (m.role == 'system' and not loop.first) %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% elif m.role == 'tool' %}<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n"
    "{% elif m.role == 'assistant' %}{% set c = m.content or '' %}{% set r = m.reasoning_content or '' %}"
    "<|im_start|>assistant\n{% if loop.index0 > ns.q and loop.last and not r %}<think>\n\n</think>\n\n{% endif %}"
    "{% generation %}{% if loop.index0 > ns.q and r %}<think>\n{{ r.strip() }}\n</think>\n\n{% endif %}"
    "{{ c.lstrip('\n') }}"
    "{% for t in m.tool_calls or [] %}{% if not (loop.first and not c) %}{{ '\n' }}{% endif %}"
    '<tool_call>\n{{ \'{"name": "\' + t.function.name + \'", "arguments": \' }}{{ t.function.arguments | tojson }}'
    "{{ \"}\" }}\n</tool_call>{% endfor %}<|im_end|>{% endgeneration %}{{ '\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
    ("<|im_start|>", "<|im_end|>"),
    _qwen,
)


def _kimi(message: Message) -> str:
    calls = "".join(
        f"<|tool_call_begin|>{call['id']}<|tool_call_argument_begin|>{json.dumps(call['function']['arguments'])}"
        "<|tool_call_end|>"
        for call in message.get("tool_calls") or []
    )
    section = f"<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>" if calls else ""
    return _text(message) + section + "<|im_end|>"


KIMI = Family(
    "Kimi-K2",
    "{% if tools %}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>{% endif %}"
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}"
    "<|im_system|>system<|im_middle|>You are Kimi, an AI assistant.<|im_end|>{% endif %}"
    "{% if m.role == 'assistant' %}<|im_assistant|>assistant<|im_middle|>{% generation %}{{ m.content or '' }}"
    "{% if m.tool_calls %}<|tool_calls_section_begin|>{% for c in m.tool_calls %}<|tool_call_begin|>{{ c.id }}"
    "{# the name is in the id #}<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}<|tool_call_end|>"
    "{% endfor %}<|tool_calls_section_end|>{% endif %}<|im_end|>{% endgeneration %}"
    "{% elif m.role == 'tool' %}"
    "<|im_system|>tool<|im_middle|>## Return of {{ m.tool_call_id }}\n{{ m.content }}<|im_end|>"
    "{% else %}<|im_{{ m.role }}|>{{ m.role }}<|im_middle|>{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}",
    (
        *("<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"),
        *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
        *("<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    _kimi,
    # An answer that nothing asked for stands before the default system prompt has a place.
    NO_THOUGHTS | {"assistant first": "assistant-first"},
)


def _harmony(message: Message) -> str:
    thought = f"<|channel|>analysis<|message|>{_thought(message)}<|end|><|start|>assistant" if _thought(message) else ""
    if calls := _calls(message):
        [call] = calls
        to = f"<|channel|>commentary to=functions.{call['name']} <|constrain|>json<|message|>"
        return thought + to + json.dumps(call["arguments"]) + "<|call|>"
    return thought + "<|channel|>final<|message|>" + _text(message) + "<|return|>"


# The last answer ends with <|return|>, the same one in a history with <|end|> and without its analysis.
HARMONY = Family(
    "gpt-oss harmony",
    "<|start|>system<|message|>Current date: {{ strftime_now('%Y-%m-%d') }}<|end|>"
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% if m.tool_calls %}{% set c = m.tool_calls[0].function %}"
    "<|start|>assistant{% generation %}"
    "{% if m.reasoning_content %}<|channel|>analysis<|message|>{{ m.reasoning_content }}<|end|>"
    "<|start|>assistant{% endif %}"
    "<|channel|>commentary to=functions.{{ c.name }} <|constrain|>json<|message|>{{ c.arguments | tojson }}<|call|>"
    "{% endgeneration %}"
    "{% elif loop.last and not add_generation_prompt %}<|start|>assistant{% generation %}"
    "{% if m.reasoning_content %}<|channel|>analysis<|message|>{{ m.reasoning_content }}<|end|>"
    "<|start|>assistant{% endif %}"
    "<|channel|>final<|message|>{{ m.content }}<|return|>{% endgeneration %}"
    "{% else %}<|start|>assistant{% generation %}<|channel|>final<|message|>{{ m.content }}<|end|>{% endgeneration %}"
    "{% endif %}"
    "{% elif m.role == 'tool' %}<|start|>functions to=assistant<|channel|>commentary<|message|>{{ m.content }}<|end|>"
    "{% elif m.role == 'system' %}<|start|>developer<|message|># Instructions\n\n{{ m.content }}<|end|>"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}",
    ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"),
    _harmony,
)

# Behind the last turn, and no other, stands the end of the text.
PHI = Family(
    "Phi-3",
    "{% for m in messages %}<|{{ m.role }}|>\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>{% endgeneration %}"
    "{% else %}{{ m.content }}<|end|>{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}",
    ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"),
    lambda m: _text(m) + "<|end|>",
    NO_TOOLS | NO_THOUGHTS,
)


def _glm(message: Message) -> str:
    thought = f"\n<think>{_thought(message)}</think>" if _thought(message) else ""
    calls = "".join(
        f"\n<tool_call>{f['name']}\n"
        + "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in f["arguments"].items()
        )
        + "</tool_call>"
        for f in _calls(message)
    )
    body = "\n" + _text(message).strip() if _text(message).strip() else ""
    return thought + body + calls + ("<|observation|>" if calls else "<|user|>")


# No token ends a turn but the one that begins the next: the target itself writes <|user|> or <|observation|>.
GLM = Family(
    "GLM",
    "[gMASK]<sop>{% if tools %}<|system|>\n# Tools\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"
    "{% set ns = namespace(q=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.q = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'user' %}<|user|>\n{{ m.content }}"
    "{% elif m.role == 'tool' %}<|observation|>\n<tool_response>\n{{ m.content }}\n</tool_response>"
    "{% elif m.role == 'system' %}<|system|>\n{{ m.content }}"
    "{% else %}<|assistant|>"
    "{% if loop.index0 > ns.q and m.reasoning_content %}"
    "{% generation %}{{ '\n<think>' + m.reasoning_content + '</think>' }}"
    "{% if m.content %}{{ '\n' + m.content.strip() }}{% endif %}{% endgeneration %}"
    "{% else %}{{ '\n<think></think>' }}{% generation %}{% if m.content %}{{ '\n' + m.content.strip() }}{% endif %}"
    "{% for t in m.tool_calls or [] %}{{ '\n<tool_call>' + t.function.name + '\n' }}"
    "{% for k, v in t.function.arguments.items() %}<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>\n"
    "{% endfor %}</tool_call>{% endfor %}{% endgeneration %}{% endif %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '\n<think></think>' }}{% endif %}{% endif %}",
    ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>"),
    _glm,
    stops=("<|endoftext|>", "<|user|>", "<|observation|>"),
)

FAMILIES = (CHATML, LLAMA, MISTRAL, GEMMA, DEEPSEEK_V3, DEEPSEEK_R1, QWEN, KIMI, HARMONY, PHI, GLM)
