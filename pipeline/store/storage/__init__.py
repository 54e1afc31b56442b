"""How states lie in a shard: one module a storage.

| storage | tensors of the shard, beside `input_ids`, `loss_mask` and `offsets` |
|---|---|
| `bf16`, `fp16`, `fp32` | `hidden_states` as computed, `[rows, layers, hidden]` |
| `bf16-zstd` | `state_planes` uint8 `[bytes]`, `plane_sizes` int64 and `plane_crc32` int64 `[samples, 2]` |
| `fp8` | `hidden_states` float8_e4m3fn `[rows, layers, hidden]`, `scales` float32 `[rows, layers]` |

`bf16-zstd` and `fp8` take bfloat16 states and give bfloat16 states back; `bf16-zstd` the same ones, to the bit.
"""

from __future__ import annotations

from pipeline.store.spec import PLAIN_STORAGES
from pipeline.store.storage.fp8 import Fp8
from pipeline.store.storage.plain import Plain
from pipeline.store.storage.protocol import Encoded, ShardStates, Storage
from pipeline.store.storage.zstd import Zstd

__all__ = ["Encoded", "ShardStates", "Storage", "storage_of"]

_STORAGES: dict[str, Storage] = {
    **{name: Plain(dtype) for dtype, name in PLAIN_STORAGES.items()},
    "bf16-zstd": Zstd(),
    "fp8": Fp8(),
}


def storage_of(name: str) -> Storage:
    """The storage of that name.

    Raises:
        KeyError: there is none.
    """
    return _STORAGES[name]
