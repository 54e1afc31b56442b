"""A unit's shard file, streamed: samples' tensors go to disk and through the hashes without being joined in memory.

The file is an ordinary safetensors file. It is written here and not by the safetensors library because that takes
whole tensors as bytes: it would copy a unit's states (470 MB for 8,192 tokens of Kimi-K2.5) twice, and the file
would have to be read again for its sha256.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from pipeline.store.content import content_sha256, layer_records, tensor_bytes
from pipeline.store.layout import Buffer, shard_file, write_synced
from pipeline.store.records import CapturedSample
from pipeline.store.sidecar import FileRecord, LayerRecord, SampleRecord

_SAFETENSORS_NAMES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}


def write_shard(
    store: Path, unit: int, samples: Sequence[CapturedSample], layer_ids: Sequence[int]
) -> tuple[FileRecord, list[SampleRecord], list[LayerRecord]]:
    """Write a unit's shard file, synced and under its final name.

    Args:
        store: the store's folder.
        unit: the unit's number.
        samples: at least one; all of the same dtype, layers and hidden size.
        layer_ids: the layers' output ids.

    Returns:
        What the unit's sidecar says about the file, its samples and its layers.
    """
    ids = [torch.tensor(sample.input_ids, dtype=torch.int64) for sample in samples]
    masks = [torch.tensor(sample.loss_mask, dtype=torch.uint8) for sample in samples]
    offsets = torch.tensor([0, *itertools.accumulate(len(tokens) for tokens in ids)], dtype=torch.int64)
    states = [sample.hidden_states for sample in samples]
    # widest types first: every tensor starts at a multiple of its item's size, so that it can be mapped
    tensors = {"input_ids": ids, "offsets": [offsets], "hidden_states": states, "loss_mask": masks}
    # hashing, norms and writing take about as long as each other, and none holds the interpreter's lock
    with ThreadPoolExecutor(max_workers=2, thread_name_prefix="hash") as pool:
        hashes = pool.map(_content_sha256, states, ids, masks)
        layers = pool.submit(layer_records, states, layer_ids)
        written = write_synced(shard_file(store, unit), _safetensors(tensors))
    records = [
        SampleRecord(id=sample.id, rows=len(sample.input_ids), sha256=sha256)
        for sample, sha256 in zip(samples, hashes, strict=True)
    ]
    return FileRecord(bytes=written.bytes, sha256=written.sha256), records, layers.result()


def _content_sha256(states: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> str:
    return content_sha256(states, tensor_bytes(ids), tensor_bytes(mask))


def _safetensors(tensors: dict[str, list[torch.Tensor]]) -> Iterator[Buffer]:
    """A safetensors file's bytes: header length (u64), JSON header, then each tensor, given in pieces along dim 0."""
    names = {**_SAFETENSORS_NAMES, torch.int64: "I64", torch.uint8: "U8"}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, pieces in tensors.items():
        end = start + sum(piece.numel() * piece.element_size() for piece in pieces)
        shape = [sum(piece.shape[0] for piece in pieces), *pieces[0].shape[1:]]
        header[name] = {"dtype": names[pieces[0].dtype], "shape": shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text))
    yield text
    for pieces in tensors.values():
        yield from map(tensor_bytes, pieces)
