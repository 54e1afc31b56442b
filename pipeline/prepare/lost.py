"""Characters that a tokenizer has no token for, and drops without a word, whole or a byte of them."""

from __future__ import annotations

import re
from typing import Any


def lost_characters(tokenizer: Any) -> re.Pattern[str] | None:
    """What finds such characters in a text; None where there are none.

    A vocabulary of bytes may lack some: single control characters then, or all characters that begin with one byte
    of UTF-8. Each of these is tried.

    Args:
        tokenizer: a transformers tokenizer.
    """
    groups = [(code, code) for code in range(0x80)] + list(_by_first_byte())
    ids = tokenizer([chr(first) for first, _ in groups], add_special_tokens=False, verbose=False)["input_ids"]
    lost = [
        group
        for group, found in zip(groups, ids, strict=True)
        if not found or (group[0] >= 0x80 and "\ufffd" in tokenizer.decode(found))
    ]
    if not lost:
        return None
    return re.compile("[" + "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in lost) + "]")


def _by_first_byte() -> list[tuple[int, int]]:
    """First and last character of each first byte of two to four."""
    groups = [(lead << 6, (lead << 6) + 0x3F) for lead in range(0x02, 0x20)]
    groups += [(max(lead << 12, 0x800), (lead << 12) + 0xFFF) for lead in range(0x10) if lead != 0xD]
    groups.append((0xD000, 0xD7FF))  # what would follow are surrogates
    return groups + [(max(lead << 18, 0x10000), min((lead << 18) + 0x3FFFF, 0x10FFFF)) for lead in range(5)]
