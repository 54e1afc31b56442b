"""What whoever writes or reads shards must know of their store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

IDENTITY = (
    "format",
    "engine",
    "dtype",
    "storage",
    "hidden_size",
    "num_layers",
    "vocab_size",
    "layer_ids",
    "final_norm_applied",
    "digests",
    "settings",
)
"""the manifest's fields that must be the same for two runs to write into one store"""

PLAIN_STORAGES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
"""by the states' dtype, the storage that keeps them as they were computed"""


@dataclass(frozen=True, kw_only=True)
class StoreSpec:
    """A store's folder and the form of its shards."""

    folder: Path
    identity: str
    """sha256 of the manifest's identity, see `identity_sha256`"""
    layer_ids: tuple[int, ...]
    """captured layers, in output numbering"""
    hidden_size: int
    dtype: str
    """of the states as computed and as read: "bfloat16", "float16" or "float32" """
    storage: str
    """how they lie on the disk, see `pipeline.store.storage`"""

    @classmethod
    def of(cls, folder: Path, manifest: Mapping[str, Any]) -> StoreSpec:
        """The spec of a store with this manifest."""
        return cls(
            folder=folder,
            identity=identity_sha256(manifest),
            layer_ids=tuple(manifest["layer_ids"]["output"]),
            hidden_size=manifest["hidden_size"],
            dtype=manifest["dtype"],
            storage=manifest["storage"],
        )


def identity_sha256(manifest: Mapping[str, Any]) -> str:
    """The sha256, in hex, of the identity in a manifest: its fields as JSON without spaces, keys sorted."""
    identity = {name: manifest.get(name) for name in IDENTITY}
    return hashlib.sha256(json.dumps(identity, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
