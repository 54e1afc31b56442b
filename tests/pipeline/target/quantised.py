"""Blocks of quantised weights to numbers, written from the formats' definition and not with the gguf library.

ggml-common.h: both formats store 32 weights a block. `block_q4_1` is a half-precision scale d and minimum m, then 16
bytes whose low halves are weights 0 to 15 and whose high halves are weights 16 to 31: w = d * q + m. `block_q8_0` is a
half-precision scale d, then 32 signed bytes: w = d * q.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def to_floats(content: npt.NDArray[np.uint8], kind: str, shape: list[int]) -> Floats:
    """A tensor's values in float32, in its shape (rows first)."""
    flat = np.frombuffer(bytearray(content.tobytes()), np.uint8)  # of a bytearray: torch wants writable memory
    formats = {"F32": lambda raw: raw.view(np.float32), "Q4_1": _q4_1, "Q8_0": _q8_0}
    return np.asarray(formats[kind](flat), np.float32).reshape(shape)


def _q4_1(raw: npt.NDArray[np.uint8]) -> Floats:
    blocks = raw.reshape(-1, 20)
    scale, minimum = blocks[:, :4].copy().view(np.float16).astype(np.float32).T
    levels = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1).astype(np.float32)
    return scale[:, None] * levels + minimum[:, None]


def _q8_0(raw: npt.NDArray[np.uint8]) -> Floats:
    blocks = raw.reshape(-1, 34)
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    return scale * blocks[:, 2:].copy().view(np.int8).astype(np.float32)


def as_llama_does_not_permute(weight: Floats, heads: int) -> Floats:
    """Undo the reordering of query and key rows in GGUF files.

    llama.cpp rotates neighbouring rows (2i, 2i+1) of a head; transformers rotates row i with row i + half. So GGUF's
    row 2i + j of a head is row j * half + i here.
    """
    half = weight.shape[0] // heads // 2
    result = np.empty_like(weight)
    for head in range(heads):
        start = head * 2 * half
        for i in range(half):
            for j in range(2):
                result[start + j * half + i] = weight[start + 2 * i + j]
    return result
