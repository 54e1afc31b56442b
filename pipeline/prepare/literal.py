"""Text of a conversation that looks like special tokens, kept from becoming them.

Such strings in messages are replaced by single private characters before the template sees them, so that in what it
renders every special token is its own; mask.py puts the strings back as ordinary text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pipeline.prepare.rejection import Rejection

_FIRST = 0xF0000
_PRIVATE_BYTE = chr(_FIRST).encode()[:1]
_PRIVATE = re.compile("[\U000f0000-\U000ffffd]")


class Hidden:
    """The strings that private characters stand for, in one conversation."""

    def __init__(self, special: re.Pattern[str], first: str = "") -> None:
        """Begin with none.

        Args:
            special: finds special tokens in text.
            first: their first characters.
        """
        self.special = special
        self._first = first
        self._strings: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._strings)

    def hide(self, value: Any) -> Any:
        """The same messages, or any part of them, with a private character for each string like a special token.

        Raises:
            Rejection: there are such characters in it already.
        """
        # Few conversations have anything to hide; those are not copied.
        return _mapped(value, self._hide) if self._is_needed(value) else value

    def _is_needed(self, value: Any) -> bool:
        texts: list[str] = []
        parts = [value]
        while parts:
            part = parts.pop()
            if isinstance(part, str):
                texts.append(part)
            elif isinstance(part, dict):
                parts.extend(part)
                parts.extend(part.values())
            elif isinstance(part, list):
                parts.extend(part)
        text = "".join(texts)
        # Looking for a character, or a byte, takes a tenth of the time that the patterns take.
        return any(one in text for one in self._first) or _PRIVATE_BYTE in text.encode("utf-8", "surrogatepass")

    def restore(self, text: str) -> str:
        """Text with the strings back in it."""
        return _PRIVATE.sub(self._string, text) if self._strings else text

    def places(self, text: str) -> Callable[[int], int]:
        """From a place in `text` to the same one in `restore(text)`."""
        found = [(match.start(), len(self._string(match)) - 1) for match in _PRIVATE.finditer(text)]
        return lambda place: place + sum(longer for at, longer in found if at < place)

    def _hide(self, text: str) -> str:
        if _PRIVATE.search(text):
            raise Rejection("private-characters", "it has characters of Unicode's plane 15, which mean nothing")
        return self.special.sub(self._character, text)

    def _character(self, match: re.Match[str]) -> str:
        self._strings.append(match.group())
        return chr(_FIRST + len(self._strings) - 1)

    def _string(self, match: re.Match[str]) -> str:
        number = ord(match.group()) - _FIRST
        return self._strings[number] if number < len(self._strings) else match.group()


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    if isinstance(value, dict):
        return {_mapped(key, change): _mapped(item, change) for key, item in value.items()}
    return value
