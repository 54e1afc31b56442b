"""Text to token ids, and the places of the answers to a loss mask.

A token is trained when all of its text lies inside an answer. One that reaches across an answer's border holds text of
the prompt too; the target, which reads its prompt in whole tokens, would never have produced it: mask 0, and counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from pipeline.prepare.literal import Hidden
from pipeline.prepare.masked import Masked
from pipeline.prepare.rejection import Rejection
from pipeline.prepare.spelling import Spelling
from pipeline.prepare.template import Rendered, Span

__all__ = ["LOST", "Masked", "mask", "masks"]
LOST = "text-lost"
"""the reason of a text that has a character without a token"""


def mask(tokenizer: Any, rendered: Rendered) -> Masked:
    """Tokenize a rendered conversation and mask it.

    Args:
        tokenizer: a transformers tokenizer. A fast one says which characters a token stands for; for any other
            one the tokens of the text up to a border must be the first tokens of the whole.
        rendered: the text and its answers.

    Returns:
        Ids and mask.

    Raises:
        Rejection: a border cannot be found in the tokens, or text that looks like special tokens cannot be kept from
            becoming them.
    """
    [masked] = masks(tokenizer, [rendered])
    if isinstance(masked, Rejection):
        raise masked
    return masked


def masks(
    tokenizer: Any,
    texts: Sequence[Rendered],
    spelling: Spelling | None = None,
    lost: re.Pattern[str] | None = None,
) -> list[Masked | Rejection]:
    """The same for several, a fast tokenizer's in one call, or two.

    Args:
        tokenizer: see `mask`.
        texts: any number.
        spelling: what its tokens spell, where that is known.
        lost: finds characters that it has no token for.
    """
    places = [place for place, text in enumerate(texts) if spelling and not text.hidden]
    spelled = spelling.masks([texts[place] for place in places]) if spelling else ()
    # A text that is spelled has lost nothing.
    found: dict[int, Masked | Rejection] = {at: one for at, one in zip(places, spelled, strict=True) if one}
    by_offsets = []
    for place, rendered in enumerate(texts):
        if place in found:
            continue
        if lost and (gone := lost.search(rendered.hidden.restore(rendered.text) if rendered.hidden else rendered.text)):
            found[place] = Rejection(LOST, f"the tokenizer has no token for {gone.group()!r}")
        elif tokenizer.is_fast and not rendered.hidden:
            by_offsets.append(place)
        else:
            try:
                found[place] = _literal(tokenizer, rendered) if rendered.hidden else _by_prefixes(tokenizer, rendered)
            except Rejection as why:
                found[place] = why
    if by_offsets:
        # The library's own objects: of most texts a few offsets are all that is needed.
        encodings = tokenizer(
            [texts[place].text for place in by_offsets],
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        ).encodings
        for place, encoding in zip(by_offsets, encodings, strict=True):
            text, answers = texts[place].text, texts[place].answers
            found[place] = _by_borders(encoding, answers) or _by_offsets(encoding.ids, encoding.offsets, text, answers)
    return [found[place] for place in range(len(texts))]


def _literal(tokenizer: Any, rendered: Rendered) -> Masked:
    """A text with strings in it that look like special tokens and are to be ordinary text."""
    if not tokenizer.is_fast:
        raise Rejection("special-token-in-text", "this tokenizer cannot read what looks like a special token as text")
    hidden, text = rendered.hidden or Hidden(re.compile("(?!)")), rendered.text
    special = hidden.special
    # First with private characters in their place: if pieces give what the whole gives, pieces may be trusted.
    whole = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    if _in_pieces(tokenizer, text, special, lambda piece: piece)[0] != whole:
        raise Rejection("special-token-in-text", "this tokenizer reads text around special tokens otherwise in pieces")
    ids, offsets = _in_pieces(tokenizer, text, special, hidden.restore)
    place = hidden.places(text)
    return _by_offsets(
        ids, offsets, hidden.restore(text), [(place(start), place(end)) for start, end in rendered.answers]
    )


def _in_pieces(
    tokenizer: Any, text: str, special: re.Pattern[str], restored: Callable[[str], str]
) -> tuple[list[int], list[Span]]:
    """Tokens and their places, the special tokens in `text` alone being special."""
    ids: list[int] = []
    offsets: list[Span] = []
    at = 0

    def ordinary(piece: str) -> None:
        nonlocal at
        piece = restored(piece)
        encoding = tokenizer(
            piece,
            add_special_tokens=False,
            split_special_tokens=True,
            return_offsets_mapping=True,
            verbose=False,
        )
        ids.extend(encoding["input_ids"])
        offsets.extend((at + start, at + end) for start, end in encoding["offset_mapping"])
        at += len(piece)

    before = 0
    for found in special.finditer(text):
        if found.start() > before:
            ordinary(text[before : found.start()])
        ids.append(tokenizer.convert_tokens_to_ids(found.group()))
        offsets.append((at, at + len(found.group())))
        at, before = at + len(found.group()), found.end()
    if before < len(text):
        ordinary(text[before:])
    return ids, offsets


def _by_borders(encoding: Any, answers: list[Span]) -> Masked | None:
    """The mask where every border of an answer is one of two tokens, both of which have it in their offsets."""
    ids = encoding.ids
    loss_mask = [0] * len(ids)
    for start, end in answers:
        first, last = encoding.char_to_token(start), encoding.char_to_token(end - 1)
        if not first or last is None:
            return None
        (_, before), (begin, _), (_, stop) = (encoding.token_to_chars(at) for at in (first - 1, first, last))
        if not (before == begin == start and stop == end) or last < first:
            return None
        # Tokens that share a character have the same offsets; the last of them counts.
        while last + 1 < len(ids) and encoding.token_to_chars(last + 1)[1] == end:
            last += 1
        loss_mask[first : last + 1] = [1] * (last + 1 - first)
    return Masked(ids, loss_mask, 0)


def _by_offsets(input_ids: list[int], offsets: list[Span], text: str, answers: list[Span]) -> Masked:
    loss_mask = [0] * len(input_ids)
    straddling = covered = 0
    pending = list(reversed(answers))
    for place, (start, end) in enumerate(offsets):
        # Some tokenizers leave a word's leading space out of its offsets; what no token covers is the next one's.
        begin, covered = min(start, covered), max(end, covered)
        while pending and pending[-1][1] <= begin:
            pending.pop()
        if not pending or end <= pending[-1][0] or begin == end:
            continue
        first, last = pending[-1]
        # An end-of-turn token may swallow the white space behind it (`rstrip`); it is produced all the same.
        if first <= begin and (end <= last or text[last:end].isspace()):
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
