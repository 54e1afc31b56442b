"""No flag of a command is one that its stage does not know."""

from __future__ import annotations

from ops.stack.stages import SERVE
from tests.task_flags import unknown_flags


def test_the_serve_stacks_stages_know_every_flag_of_their_commands() -> None:
    unknown = unknown_flags(SERVE)
    assert not any(unknown.values()), unknown
