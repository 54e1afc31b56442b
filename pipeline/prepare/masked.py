"""What masking a text gives."""

from __future__ import annotations

from dataclasses import dataclass


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
