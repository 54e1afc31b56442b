"""Plain text, as for pre-training: `{"text": "..."}`. No template is rendered."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.prepare.conversation import own_id
from pipeline.prepare.formats.turns import Json, text_at
from pipeline.prepare.rejection import Rejection


@dataclass(frozen=True)
class Text:
    """One row.

    Attributes:
        id: the row's own id, if it has one.
        text: all of it is to be learned.
    """

    id: str | None
    text: str


def read(row: Json) -> Text:
    """The text of a row.

    Raises:
        Rejection: it has none.
    """
    text = text_at(row, "text", "the row")
    if not text.strip():
        raise Rejection("empty-text", "'text' of the row has nothing in it")
    return Text(own_id(row), text)
