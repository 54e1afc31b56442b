"""Text to token ids, and the places of the answers to a loss mask.

A token is trained when all of its text lies inside an answer. One that reaches across an answer's border holds text of
the prompt too; the target, which reads its prompt in whole tokens, would never have produced it: mask 0, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.prepare.rejection import Rejection
from pipeline.prepare.template import Rendered, Span


@dataclass(frozen=True)
class Masked:
    """Tokens of one conversation.

    Attributes:
        input_ids: the whole conversation.
        loss_mask: 1 where the target itself would have produced the token; as long as `input_ids`.
        straddling: how many tokens reach across an answer's border.
    """

    input_ids: list[int]
    loss_mask: list[int]
    straddling: int


def mask(tokenizer: Any, rendered: Rendered) -> Masked:
    """Tokenize a rendered conversation and mask it.

    Args:
        tokenizer: a transformers tokenizer. A fast one says which characters a token stands for; for any other
            one the tokens of the text up to a border must be the first tokens of the whole.
        rendered: the text and its answers.

    Returns:
        Ids and mask.

    Raises:
        Rejection: the tokenizer is not a fast one and a border lies inside a token.
    """
    if tokenizer.is_fast:
        encoding = tokenizer(rendered.text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return _by_offsets(encoding["input_ids"], encoding["offset_mapping"], rendered)
    return _by_prefixes(tokenizer, rendered)


def _by_offsets(input_ids: list[int], offsets: list[Span], rendered: Rendered) -> Masked:
    loss_mask = [0] * len(input_ids)
    straddling = covered = 0
    pending = list(reversed(rendered.answers))
    for place, (start, end) in enumerate(offsets):
        # Some tokenizers leave a word's leading space out of its offsets; what no token covers is the next one's.
        begin, covered = min(start, covered), max(end, covered)
        while pending and pending[-1][1] <= begin:
            pending.pop()
        if not pending or end <= pending[-1][0] or begin == end:
            continue
        first, last = pending[-1]
        # An end-of-turn token may swallow the white space behind it (`rstrip`); it is produced all the same.
        if first <= begin and (end <= last or rendered.text[last:end].isspace()):
            loss_mask[place] = 1
        else:
            straddling += 1
    return Masked(input_ids, loss_mask, straddling)


def _by_prefixes(tokenizer: Any, rendered: Rendered) -> Masked:
    input_ids = _ids(tokenizer, rendered.text)
    loss_mask = [0] * len(input_ids)
    for answer in rendered.answers:
        borders = []
        for border in answer:
            before = _ids(tokenizer, rendered.text[:border])
            if input_ids[: len(before)] != before:
                raise Rejection(
                    "border-inside-token", f"a token reaches across character {border} of the rendered text"
                )
            borders.append(len(before))
        loss_mask[borders[0] : borders[1]] = [1] * (borders[1] - borders[0])
    return Masked(input_ids, loss_mask, 0)


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
