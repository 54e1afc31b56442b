"""How states lie in a shard: one module a storage.

| storage | tensors of the shard, beside `input_ids`, `loss_mask` and `offsets` |
|---|---|
| `bf16`, `fp16`, `fp32` | `hidden_states` as computed, `[rows, layers, hidden]` |
"""

from __future__ import annotations

from pipeline.store.storage.plain import Plain
from pipeline.store.storage.protocol import Encoded, ShardStates, Storage

__all__ = ["Encoded", "ShardStates", "Storage", "storage_of"]

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def storage_of(name: str) -> Storage:
    """The storage of that name.

    Raises:
        KeyError: there is none.
    """
    return Plain(_DTYPES[name])
