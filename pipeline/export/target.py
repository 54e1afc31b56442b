"""What an export needs to know of its target."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.errors import InputError
from pipeline.export.forms import TargetFacts


def target_facts(folder: Path, name: str | None) -> TargetFacts:
    """Read a target's settings and embeddings.

    Args:
        folder: the target's.
        name: the hub's name that the export shall name it by; None: the folder's last part, which tells nothing of
            the machine.

    Raises:
        InputError: it has no embeddings in safetensors.
    """
    from loguru import logger
    from speculators.utils.loading import load_model_layers

    logger.disable("speculators.utils.loading")
    try:
        embeddings = load_model_layers(["embed_tokens.weight"], str(folder))["embed_tokens.weight"]
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"cannot read embed_tokens.weight of the target {folder}: {error}") from error
    config = json.loads((folder / "config.json").read_bytes())
    return TargetFacts(
        name=name or folder.absolute().name, config=config.get("text_config") or config, embeddings=embeddings
    )
