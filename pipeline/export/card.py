"""The model card: what an export is, what it was made from, what it is worth, and how it is served.

It names no folder of the machine that it was made on and no time, so that the same export is the same file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.export.draft import Draft
from pipeline.export.forms import EAGLE3, Form, TargetFacts
from pipeline.export.sources import Sources

_FORMS = {
    "speculators": "It is in the form of the speculators library, which vLLM reads.",
    EAGLE3: "It is in the form of public EAGLE-3 checkpoints (`LlamaForCausalLMEagle3`), which SGLang and vLLM read. "
    "The embeddings are the target's and not in it, so vLLM cannot split it over a pipeline.",
}


def card(form: Form, draft: Draft, target: TargetFacts, sources: Sources) -> str:
    """README.md of one folder of an export."""
    parts = [
        _head(form, target),
        _what(form, draft, target),
        _serve(form, draft, target),
        _acceptance(sources),
        _vocabulary(draft, sources),
        _origin(sources),
        _training(sources),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(form: Form, target: TargetFacts) -> str:
    tags = ["eagle3", "speculative-decoding", "vllm", *(["sglang"] if form.name == EAGLE3 else [])]
    return "\n".join(
        [
            "---",
            "# license: yours to choose; see that the target's own licence and that of the data allow it",
            f"base_model: {json.dumps(target.name)}",
            "tags:",
            *(f"  - {tag}" for tag in tags),
            "---",
        ]
    )


def _what(form: Form, draft: Draft, target: TargetFacts) -> str:
    layers = ", ".join(str(layer) for layer in draft.layer_ids)
    outputs = ", ".join(str(layer - 1) for layer in draft.layer_ids)
    parameters = sum(tensor.numel() for tensor in form.tensors.values() if tensor.is_floating_point())
    return (
        f"# EAGLE-3 draft for {target.name}\n\n"
        f"A draft model for speculative decoding: it reads the hidden states of {target.name} and proposes its next "
        f"tokens, which the target verifies. {_FORMS[form.name]}\n\n"
        f"It reads the states that enter the target's layers {layers} (those after layers {outputs}, counted from 0) "
        f"of {target.config['num_hidden_layers']}. {parameters:,} parameters in {form.tensors['fc.weight'].dtype}."
    ).replace("torch.", "")


def _serve(form: Form, draft: Draft, target: TargetFacts) -> str:
    steps = draft.speculative_tokens
    config = json.dumps({"method": "eagle3", "model": "THIS_FOLDER", "num_speculative_tokens": steps})
    lines = [
        "## Serving",
        "",
        f"With `THIS_FOLDER` in place of this folder's path, and `{target.name}` being the target's name or folder:",
        "",
        "```sh",
        f"vllm serve {target.name} --speculative-config '{config}'",
        "```",
    ]
    if form.name == EAGLE3:
        lines += [
            "",
            "```sh",
            f"python -m sglang.launch_server --model-path {target.name} --speculative-algorithm EAGLE3 \\",
            f"  --speculative-draft-model-path THIS_FOLDER --speculative-num-steps {steps} \\",
            f"  --speculative-eagle-topk 1 --speculative-num-draft-tokens {steps + 1}",
            "```",
            "",
            _layer_note(form.config),
        ]
    return "\n".join(lines)


def _layer_note(config: Mapping[str, Any]) -> str:
    """The servers number layers differently; whoever copies the settings should know."""
    ids = config["eagle_aux_hidden_state_layer_ids"]
    inner = config["eagle_config"].get("eagle_aux_hidden_state_layer_ids")
    if inner is None:
        return f"The layers {ids} are what vLLM reads and what SGLang takes where it is told nothing."
    return (
        f"In `config.json`, vLLM reads `eagle_aux_hidden_state_layer_ids` {ids}; SGLang reads {inner} inside "
        "`eagle_config`, which are the same layers in its numbers for this target."
    )


def _acceptance(sources: Sources) -> str:
    if sources.evaluation is None:
        return ""
    return f"## Acceptance\n\nMeasured in vLLM on held-out prompts:\n\n```\n{sources.evaluation}\n```"


def _vocabulary(draft: Draft, sources: Sources) -> str:
    text = f"## Vocabulary\n\n{draft.draft_vocab_size:,} of the target's {draft.vocab_size:,} tokens"
    if sources.coverage is None:
        return text + "."
    return f"{text}: {sources.coverage:.2%} of the tokens that the target wrote in the training data."


def _origin(sources: Sources) -> str:
    rows = list(_digests(sources))
    return "" if not rows else "\n".join(["## Made from", "", "| | sha256 |", "|---|---|", *rows])


def _digests(sources: Sources) -> Iterator[str]:
    if sources.manifest is not None:
        yield f"| store | `{sources.manifest['store_digest']}` |"
        names = {"data": "tokenized data", "model": "target's files", "stack": "stack of the extraction"}
        yield from (f"| {text} | `{sources.manifest['digests'][name]}` |" for name, text in names.items())
    stack = (sources.training or {}).get("stack")
    if isinstance(stack, dict) and "digest" in stack:
        yield f"| stack of the training | `{stack['digest']}` |"


def _training(sources: Sources) -> str:
    settings = (sources.training or {}).get("settings")
    if not isinstance(settings, dict):
        return ""
    rows = [f"| `{name}` | {json.dumps(value)} |" for name, value in sorted(settings.items()) if _tells(value)]
    return "\n".join(["## Training settings", "", "| setting | value |", "|---|---|", *rows])


def _tells(value: object) -> bool:
    """Whether a setting says something elsewhere too: a path does not."""
    return value is not None and not (isinstance(value, str) and "/" in value)
