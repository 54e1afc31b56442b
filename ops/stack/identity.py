"""What an environment says of itself, in the stack.json at its root."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ops.stack.digest import patch_list, stack_digest
from ops.stack.model import Stack


def write_identity(stack: Stack, accelerator: str, python: str, environment: Path) -> dict[str, Any]:
    """Write stack.json and return its content.

    Args:
        stack: what the environment was made from.
        accelerator: which of its parts.
        python: the environment's Python version, in full.
        environment: its root.
    """
    identity = {
        "name": stack.name,
        "accelerator": accelerator,
        "digest": stack_digest(stack, accelerator),
        "python": python,
        "patches": patch_list(stack),
    }
    (environment / "stack.json").write_text(json.dumps(identity, indent=2) + "\n", encoding="utf-8")
    return identity
