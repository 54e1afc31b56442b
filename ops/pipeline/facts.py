"""What a target is, in numbers: from its config.json where that is there, else from the recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.pipeline.errors import FactsError, MissingInputError, RecipeError

# Names in config.json, of the text model where there is one around it.
NAMES = {
    "layers": "num_hidden_layers",
    "hidden-size": "hidden_size",
    "vocab-size": "vocab_size",
    "intermediate-size": "intermediate_size",
    "heads": "num_attention_heads",
    "kv-heads": "num_key_value_heads",
    "head-dim": "head_dim",
    "kv-lora-rank": "kv_lora_rank",
    "rope-head-dim": "qk_rope_head_dim",
}
NEEDED = ("layers", "hidden-size", "vocab-size", "heads")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Sizes of a target."""

    layers: int
    hidden_size: int
    vocab_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    kv_lora_rank: int = 0
    """rank of the latent that multi-head latent attention caches; 0 where the target has plain keys and values"""
    rope_head_dim: int = 0
    """of latent attention: what is cached beside the latent"""
    weight_bytes: int | None = None


def facts_of(target: Path, told: Mapping[str, int], recipe: str) -> Facts:
    """The facts of a target.

    Args:
        target: its folder, which may not be there.
        told: the recipe's [target] table.
        recipe: its name, for messages.

    Raises:
        FactsError: recipe and config.json disagree; names the field and both values.
        RecipeError: something needed is in neither.
        MissingInputError: config.json cannot be read.
    """
    found = _config(target)
    for name, value in told.items():
        if name in found and found[name] != value:
            raise FactsError(
                f"{name} is {found[name]} in {target / 'config.json'} and {value} in [target] of recipe {recipe}: "
                "correct the recipe, or name the target it is for"
            )
    known = {**told, **found}
    missing = [name for name in NEEDED if name not in known]
    if missing:
        raise RecipeError(
            f"recipe {recipe}: {', '.join(missing)} of the target: not in {target}, so give it in [target]"
        )
    return _completed(known, _weights(target) or told.get("weight-bytes"))


def _config(target: Path) -> dict[str, int]:
    file = target / "config.json"
    try:
        config: dict[str, Any] = json.loads(file.read_bytes())
        text = config.get("text_config", config)
        values = {name: text.get(key) for name, key in NAMES.items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise MissingInputError(f"cannot read {file}: {error}") from error
    return {name: value for name, value in values.items() if isinstance(value, int)}


def _completed(known: Mapping[str, int], weight_bytes: int | None) -> Facts:
    """The rest by the rules of speculators 0.9.0, train/cli.py and models/utils.py, for a draft's shape."""
    hidden, heads = known["hidden-size"], known["heads"]
    return Facts(
        layers=known["layers"],
        hidden_size=hidden,
        vocab_size=known["vocab-size"],
        intermediate_size=known.get("intermediate-size", 3 * hidden),
        heads=heads,
        kv_heads=known.get("kv-heads", heads),
        head_dim=known.get("head-dim", hidden // heads),
        kv_lora_rank=known.get("kv-lora-rank", 0),
        rope_head_dim=known.get("rope-head-dim", 0),
        weight_bytes=weight_bytes,
    )


def _weights(target: Path) -> int:
    """Bytes of the target's weight files; 0 where there is none."""
    return sum(file.stat().st_size for file in target.glob("*.safetensors"))
