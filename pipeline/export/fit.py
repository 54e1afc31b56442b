"""Whether a draft, its target and a store belong together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import FitError
from pipeline.export.draft import Draft
from pipeline.extract.digests import model_digest
from pipeline.extract.target import Target


def check_target(draft: Draft, target: Target) -> None:
    """Refuse a draft that was made for another target.

    Raises:
        FitError: names the field and both values.
    """
    for name in ("hidden_size", "vocab_size"):
        if getattr(draft, name) != getattr(target, name):
            raise FitError(
                f"{name} is {getattr(draft, name)} in the draft {draft.folder} and {getattr(target, name)} in the "
                f"target {target.folder}: give the target that the draft was trained for"
            )
    for layer in draft.layer_ids:
        if not 1 <= layer < target.num_layers:
            raise FitError(
                f"eagle_aux_hidden_state_layer_ids of the draft {draft.folder} has {layer}, and the states that enter "
                f"the target's layers are 1 to {target.num_layers - 1} ({target.folder}): give the right target"
            )


def check_store(draft: Draft, target: Target, store: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a store of another target, or without the layers that the draft reads.

    Args:
        draft: fits the target, see `check_target`.
        target: what the store must have been made from.
        store: its folder.
        manifest: its manifest.

    Raises:
        FitError: names the field and both values.
    """
    for name in ("hidden_size", "num_layers", "vocab_size"):
        if manifest[name] != getattr(target, name):
            raise FitError(_differ(name, store, manifest[name], target, getattr(target, name)))
    there, now = manifest["digests"]["model"], model_digest(target.folder)
    if there != now:
        raise FitError(_differ("digests.model", store, f"{there[:12]}…", target, f"{now[:12]}…"))
    inputs = manifest["layer_ids"]["input"]
    if missing := sorted(set(draft.layer_ids) - set(inputs)):
        raise FitError(
            f"layer_ids.input of the store {store} is {inputs}, without {missing} of the draft's "
            f"eagle_aux_hidden_state_layer_ids {list(draft.layer_ids)}: extract these layers"
        )
    if target.num_layers not in inputs:
        raise FitError(
            f"layer_ids.output of the store {store} is {manifest['layer_ids']['output']}, without the target's last "
            f"layer {target.num_layers - 1}: extract it too"
        )


def _differ(name: str, store: Path, there: object, target: Target, now: object) -> str:
    return (
        f"{name} is {there} in the store {store} and {now} in the target {target.folder}: give the target that the "
        "store was made from"
    )
