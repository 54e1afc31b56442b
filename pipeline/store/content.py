"""Hashes and statistics of states.

A sample's **content sha256** is over, in this order:

1. one line of JSON, `{"dtype":"bfloat16","shape":[rows,layers,hidden]}` plus a newline, with just these spaces and
   names (dtype as torch names it);
2. the states' bytes, row-major `[rows, layers, hidden]`, little-endian;
3. `input_ids` as little-endian int64, `rows` of them;
4. `loss_mask` as uint8, `rows` of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import torch

from pipeline.store.layout import Buffer, Digest
from pipeline.store.sidecar import LayerRecord


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """A contiguous CPU tensor's memory, row-major, not copied."""
    return memoryview(tensor.view(torch.uint8).numpy()).cast("B")


def content_sha256(states: torch.Tensor, input_ids: Buffer, loss_mask: Buffer) -> str:
    """The content sha256 of a sample.

    Args:
        states: `[rows, layers, hidden]`, contiguous, on the CPU.
        input_ids: bytes of `rows` int64.
        loss_mask: bytes of `rows` uint8.
    """
    head = {"dtype": str(states.dtype).removeprefix("torch."), "shape": list(states.shape)}
    digest: Digest = hashlib.sha256(json.dumps(head, separators=(",", ":")).encode() + b"\n")
    for piece in (tensor_bytes(states), input_ids, loss_mask):
        digest.update(piece)
    return digest.hexdigest()


def row_norms(states: torch.Tensor) -> torch.Tensor:
    """L2 norm of every row and layer, float32 `[rows, layers]`; NaN or infinite where a value is (or overflows)."""
    norms: torch.Tensor = torch.linalg.vector_norm(states, dim=-1, dtype=torch.float32)
    return norms


def non_finite_layers(states: torch.Tensor) -> list[int]:
    """Positions (not layer ids) of the layers of `[rows, layers, hidden]` that hold a NaN or an infinity."""
    suspects = (~row_norms(states).isfinite()).any(dim=0).nonzero().flatten().tolist()
    return [layer for layer in suspects if _count_non_finite(states[:, layer])]


def layer_records(states: Iterable[torch.Tensor], layer_ids: Iterable[int]) -> list[LayerRecord]:
    """Norm statistics and non-finite counts per layer over the samples of a shard.

    Args:
        states: `[rows, layers, hidden]` each.
        layer_ids: the layers' output ids.
    """
    samples = list(states)
    norms = torch.cat([row_norms(sample) for sample in samples])
    return [
        LayerRecord(
            output=layer,
            norm_min=_finite(norms[:, at].min()),
            norm_mean=_finite(norms[:, at].double().mean()),
            norm_max=_finite(norms[:, at].max()),
            non_finite=0 if norms[:, at].isfinite().all() else sum(_count_non_finite(s[:, at]) for s in samples),
        )
        for at, layer in enumerate(layer_ids)
    ]


def _count_non_finite(values: torch.Tensor) -> int:
    return int(values.numel() - values.isfinite().sum())


def _finite(value: torch.Tensor) -> float | None:
    """JSON has no NaN."""
    return float(value) if value.isfinite() else None
