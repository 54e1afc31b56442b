"""Hashes and statistics of states.

A sample's **content sha256** is over, in this order:

1. one line of JSON, `{"dtype":"bfloat16","shape":[rows,layers,hidden]}` plus a newline, with just these spaces and
   names (dtype as torch names it);
2. the states' bytes, row-major `[rows, layers, hidden]`, little-endian; where the storage loses something, what it
   keeps instead (see `pipeline.store.storage`);
3. `input_ids` as little-endian int64, `rows` of them;
4. `loss_mask` as uint8, `rows` of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

import torch

from pipeline.store.layout import Digest
from pipeline.store.sidecar import LayerRecord

_SERIAL = 32_767
"""Values of a tensor that torch works on with one thread however many it has. More are shared out between its threads,
which on cores that have other work takes 30 times as long."""
_CACHED = 1 << 18
"""Values that in float32 stay in a core's cache"""


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """A contiguous CPU tensor's memory, row-major, not copied."""
    return memoryview(tensor.view(torch.uint8).numpy()).cast("B")


def content_sha256(dtype: str, shape: Sequence[int], content: Iterable[torch.Tensor]) -> str:
    """The content sha256 of a sample.

    Args:
        dtype: as torch names it, of the first tensor.
        shape: `[rows, layers, hidden]`.
        content: contiguous, on the CPU: what is kept of the states, then `input_ids` as int64, `loss_mask` as uint8.
    """
    head = {"dtype": dtype, "shape": list(shape)}
    digest: Digest = hashlib.sha256(json.dumps(head, separators=(",", ":")).encode() + b"\n")
    for tensor in content:
        digest.update(tensor_bytes(tensor))  # without the interpreter's lock
    return digest.hexdigest()


def row_norms(states: torch.Tensor) -> torch.Tensor:
    """L2 norm of every row and layer, float32 `[rows, layers]`; NaN or infinite where a value is (or overflows)."""
    if not states.is_cpu or states.dtype == torch.float32:
        return torch.linalg.vector_norm(states, dim=-1, dtype=torch.float32)
    rows = states.reshape(-1, states.shape[-1])
    norms = torch.empty(rows.shape[0])
    # In pieces that stay in the cache this is 4 times as fast as torch's own reduction of all of a bfloat16 tensor.
    step = max(1, (_CACHED if torch.get_num_threads() == 1 else _SERIAL) // rows.shape[1])
    chunk = torch.empty(step, rows.shape[1])
    for start in range(0, rows.shape[0], step):
        here = rows[start : start + step]
        torch.linalg.vector_norm(chunk[: len(here)].copy_(here), dim=-1, out=norms[start : start + step])
    return norms.view(states.shape[:-1])


def non_finite_layers(states: torch.Tensor, norms: torch.Tensor) -> list[int]:
    """Positions (not layer ids) of the layers of `[rows, layers, hidden]` that hold a NaN or an infinity."""
    return [layer for layer, count in enumerate(non_finite_counts(states, norms)) if count]


def layer_records(
    samples: Iterable[tuple[torch.Tensor, torch.Tensor]], layer_ids: Sequence[int], errors: Sequence[float | None]
) -> list[LayerRecord]:
    """Statistics per layer over the rows of a shard.

    Args:
        samples: at least one: states `[rows, layers, hidden]`, and their norms as `row_norms` gives them.
        layer_ids: the layers' output ids.
        errors: the storage's relative error, per layer; None where it has none.
    """
    found = [(part, non_finite_counts(states, part)) for states, part in samples]
    norms = torch.cat([part for part, _ in found])
    non_finite = [sum(counts) for counts in zip(*(counts for _, counts in found), strict=True)]
    square_sums = norms.double().square().sum(dim=0)
    return [
        LayerRecord(
            output=layer,
            norm_min=_finite(norms[:, at].min()),
            norm_mean=_finite(norms[:, at].double().mean()),
            norm_max=_finite(norms[:, at].max()),
            square_sum=_finite(square_sums[at]),
            non_finite=non_finite[at],
            relative_error=errors[at],
        )
        for at, layer in enumerate(layer_ids)
    ]


def count_non_finite(values: torch.Tensor) -> int:
    """NaN or infinite values in a tensor."""
    return int(values.numel() - values.isfinite().sum())


def non_finite_counts(states: torch.Tensor, norms: torch.Tensor) -> list[int]:
    """NaN or infinite values in each layer of `[rows, layers, hidden]`, counted only where a norm tells of some."""
    finite = norms.isfinite().all(dim=0).tolist()
    return [0 if is_finite else count_non_finite(states[:, layer]) for layer, is_finite in enumerate(finite)]


def _finite(value: torch.Tensor) -> float | None:
    """JSON has no NaN."""
    return float(value) if value.isfinite() else None
