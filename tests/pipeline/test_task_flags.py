"""No flag of a command is one that its stage does not know."""

from __future__ import annotations

from ops.stack.stages import EXTRACT
from tests.task_flags import unknown_flags


def test_the_extract_stacks_stages_know_every_flag_of_their_commands() -> None:
    unknown = unknown_flags(EXTRACT)
    assert {"prepare", "extract", "verify"} <= unknown.keys()
    assert not any(unknown.values()), unknown
