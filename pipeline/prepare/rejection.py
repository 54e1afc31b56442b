"""Why a row does not become a sample."""

from __future__ import annotations


class Rejection(Exception):
    """A row that is left out.

    Attributes:
        reason: a short fixed name, by which rows are counted.
        detail: what is wrong in this row, in one line.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = one_line(detail)


def one_line(text: str, limit: int = 200) -> str:
    """Text as one printable line of at most `limit` characters."""
    line = "".join(char if char.isprintable() else " " for char in " ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"
