"""A unit's shard file: an ordinary safetensors file, streamed to the disk and mapped back from it.

It is written here and not by the safetensors library because that takes whole tensors as bytes: it would copy a unit's
states (470 MB for 8,192 tokens of Kimi-K2.5) twice. It is mapped here because that library maps and parses a file anew
for every sample.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import torch

from pipeline.errors import StoreDamagedError
from pipeline.store.content import tensor_bytes
from pipeline.store.layout import Buffer

_NAMES = {
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float32: "F32",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int64: "I64",
    torch.uint8: "U8",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


def shard_bytes(tensors: Mapping[str, Sequence[torch.Tensor]]) -> Iterator[Buffer]:
    """A safetensors file's bytes: header length (u64), JSON header, then each tensor, given in pieces along dim 0.

    Tensors of wide items come first: each starts at a multiple of its item's size, so that it can be mapped.
    """
    ordered = dict(sorted(tensors.items(), key=lambda named: (-named[1][0].element_size(), named[0])))
    yield shard_header(
        {
            name: (pieces[0].dtype, [sum(len(piece) for piece in pieces), *pieces[0].shape[1:]])
            for name, pieces in ordered.items()
        }
    )
    for pieces in ordered.values():
        yield from map(tensor_bytes, pieces)


def shard_header(tensors: Mapping[str, tuple[torch.dtype, Sequence[int]]]) -> bytes:
    """The header of a shard with tensors of these dtypes and shapes, in their order; its length comes first."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, (dtype, shape) in tensors.items():
        end = start + torch.Size(shape).numel() * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


_REQUEST = 512 << 10
"""Bytes asked for at once: Linux cuts a larger request, without a word, to the device's largest transfer (of disks at
least this much) or its read-ahead, whichever is more (force_page_cache_ra in mm/readahead.c)."""


class MappedShard:
    """A shard file mapped into memory: its tensors, by name, are views of the file's pages.

    The mapping is private: a tensor that is changed in place changes in this process only. Every byte of the header is
    checked to be what `shard_header` writes for the tensors that it names.
    """

    def __init__(self, file: Path) -> None:
        """Map a file.

        Raises:
            StoreDamagedError: it is missing, cut off, or no shard.
        """
        try:
            with file.open("rb") as stream:
                self._memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
            self.tensors = dict(_tensors(self._memory))
        except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
            raise StoreDamagedError(f"cannot read {file}: {error or type(error).__name__}") from error

    def will_need(self, part: torch.Tensor) -> None:
        """Have the kernel begin to read what a part of one of the tensors lies on; does not wait for it."""
        start = part.data_ptr() - self._base
        end = start + part.nbytes
        for page in range(start // mmap.PAGESIZE * mmap.PAGESIZE, end, _REQUEST):
            self._memory.madvise(mmap.MADV_WILLNEED, page, min(_REQUEST, end - page))

    @cached_property
    def _base(self) -> int:
        return torch.frombuffer(self._memory, dtype=torch.uint8).data_ptr()


def _tensors(memory: mmap.mmap) -> Iterable[tuple[str, torch.Tensor]]:
    (length,) = struct.unpack_from("<Q", memory)
    header = json.loads(memory[8 : 8 + length])
    del header["__metadata__"]
    described = {name: (_DTYPES[entry["dtype"]], entry["shape"]) for name, entry in header.items()}
    size = 8 + length + sum(torch.Size(shape).numel() * dtype.itemsize for dtype, shape in described.values())
    if memory[: 8 + length] != shard_header(described) or len(memory) != size:
        raise ValueError("its header does not fit its content")
    start = 8 + length
    for name, (dtype, shape) in described.items():
        count = torch.Size(shape).numel()
        flat = (
            torch.frombuffer(memory, dtype=dtype, count=count, offset=start) if count else torch.empty(0, dtype=dtype)
        )
        yield name, flat.view(shape)
        start += count * dtype.itemsize
