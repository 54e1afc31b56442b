"""What a storage gives back, what it loses, and that no changed bit of a shard stays unseen."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import load_file

from pipeline.store.check import unit_faults
from pipeline.store.layout import shard_file
from pipeline.store.manifest import read_manifest
from pipeline.store.reader import StoreReader
from pipeline.store.records import CapturedSample
from pipeline.store.sidecar import read_sidecar
from pipeline.store.spec import StoreSpec
from pipeline.store.storage import Storage, storage_of
from pipeline.store.writer import Store
from tests.pipeline.store.fake import HIDDEN, LAYERS, captured, identity

STORAGES = ("bf16", "bf16-zstd", "fp8")
SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 5), st.integers(1, 64))


def store_of(folder: Path, storage: str, samples: list[CapturedSample]) -> Path:
    with Store.open_for_run(folder, identity(storage=storage)) as store:
        store.write_unit(0, samples)
        store.finalise([], len(samples))
    return folder


def there_and_back(storage: Storage, states: torch.Tensor) -> torch.Tensor:
    encoded = storage.encode(states)
    rows, layers, hidden = states.shape
    return storage.open(encoded.pieces, [0, rows], layers, hidden).sample(0)


def floats(bits: np.ndarray) -> np.ndarray:
    """What bfloat16 bit patterns mean: the upper halves of float32 ones."""
    return (bits.astype("<u4") << 16).view("<f4")


def bits_of(states: torch.Tensor) -> np.ndarray:
    return states.view(torch.int16).numpy().view(np.uint16)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(arrays.arrays(np.uint16, SHAPES))
@pytest.mark.parametrize("name", ["bf16", "bf16-zstd"])
def test_any_bit_pattern_of_any_shape_comes_back_to_the_bit(name: str, bits: np.ndarray) -> None:
    states = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
    back = there_and_back(storage_of(name), states)
    assert back.dtype == torch.bfloat16
    assert np.array_equal(bits_of(back), bits)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(arrays.arrays(np.uint16, SHAPES))
def test_fp8_loses_a_sixteenth_of_a_value_at_most_and_a_constant_share_of_the_rows_largest(bits: np.ndarray) -> None:
    bits[bits & 0x7F80 == 0x7F80] ^= 0x4000  # no NaN and no infinity
    back = there_and_back(storage_of("fp8"), torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16))
    states, found = floats(bits).astype(np.float64), floats(bits_of(back)).astype(np.float64)
    scale = np.maximum(np.abs(states).max(axis=-1, keepdims=True) / 448, 2.0**-126)
    # e4m3 has steps of 2^-3 of a value's power of two, and of 2^-9 below 2^-6; then bfloat16 rounds once more.
    bound = np.where(np.abs(states) / scale >= 2.0**-6, np.abs(states) * 2.0**-4, scale * 2.0**-10)
    assert (np.abs(found - states) <= bound + np.abs(found) * 2.0**-8 + 2.0**-133).all()


def test_zero_rows_stay_zero_and_have_scale_1() -> None:
    encoded = storage_of("fp8").encode(torch.zeros(2, 3, 8, dtype=torch.bfloat16))
    assert encoded.pieces["scales"].tolist() == [[1.0] * 3] * 2
    assert not encoded.pieces["hidden_states"].float().any()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_fp8_does_not_pass_non_finite_states_off_as_finite(value: float) -> None:
    states = torch.ones(2, 3, 8, dtype=torch.bfloat16)
    states[1, 2, 5] = value
    back = there_and_back(storage_of("fp8"), states)
    assert not back[1, 2].isfinite().all()
    assert torch.equal(back[0], states[0])


def massive() -> CapturedSample:
    """States with what real ones have: layers of scales 1,000 apart, and first rows with one value far above all."""
    rng = np.random.default_rng(5)
    states = rng.standard_normal((37, len(LAYERS), HIDDEN)) * np.array([0.02, 0.3, 3, 20])[:, None]
    states[0, 1:, 3] = 9000
    return CapturedSample("m", [1] * 37, [1] * 37, torch.from_numpy(states).to(torch.bfloat16))


def test_the_error_in_record_and_manifest_is_that_of_what_is_read(tmp_path: Path) -> None:
    samples = [massive(), captured(3)]
    folder = store_of(tmp_path / "store", "fp8", samples)
    reader = StoreReader(folder)
    wanted = np.concatenate([floats(bits_of(sample.hidden_states)) for sample in samples]).astype(np.float64)
    found = np.concatenate([floats(bits_of(reader.sample(s.id).hidden_states)) for s in samples]).astype(np.float64)
    expected = np.sqrt(((found - wanted) ** 2).sum(axis=(0, 2)) / (wanted**2).sum(axis=(0, 2)))
    assert (expected > 1e-5).all()
    assert [layer.relative_error for layer in read_sidecar(folder, 0).layers] == pytest.approx(expected, rel=1e-6)
    errors = [layer["relative_error"] for layer in read_manifest(folder)["layers"]]
    assert errors == pytest.approx(expected, rel=1e-6)
    assert max(errors) <= 0.03


def test_fp8_in_a_shard_is_value_times_scale_and_hashed_as_documented(tmp_path: Path) -> None:
    sample = massive()
    folder = store_of(tmp_path / "store", "fp8", [sample])
    raw = shard_file(folder, 0).read_bytes()
    shard = {name: (raw[a:b], shape) for name, a, b, shape in tensors_of(raw)}
    values, scales = np.frombuffer(shard["hidden_states"][0], "u1"), np.frombuffer(shard["scales"][0], "<f4")
    assert shard["hidden_states"][1] == [37, 4, HIDDEN]
    largest = np.abs(floats(bits_of(sample.hidden_states))).max(axis=-1)
    assert np.array_equal(scales.reshape(37, 4), largest / np.float32(448))
    meant = np.array([e4m3(code) for code in values.tolist()]).reshape(37, 4, HIDDEN) * scales.reshape(37, 4, 1)
    read = StoreReader(folder).sample("m").hidden_states
    assert torch.equal(read, torch.from_numpy(meant.astype(np.float32)).to(torch.bfloat16))
    head = b'{"dtype":"float8_e4m3fn","shape":[37,4,8]}\n'
    body = values.tobytes() + scales.tobytes() + (1).to_bytes(8, "little") * 37 + b"\x01" * 37
    assert read_sidecar(folder, 0).samples[0].sha256 == hashlib.sha256(head + body).hexdigest()


def e4m3(code: int) -> float:
    sign, exponent, mantissa = -1 if code & 0x80 else 1, (code >> 3) & 15, code & 7
    return sign * (math.ldexp(8 + mantissa, exponent - 10) if exponent else math.ldexp(mantissa, -9))


def tensors_of(raw: bytes) -> list[tuple[str, int, int, list[int]]]:
    """Name, start, end and shape of a safetensors file's tensors: safetensors' numpy side has no 8-bit floats."""
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    return [
        (name, start + entry["data_offsets"][0], start + entry["data_offsets"][1], entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__"
    ]


def test_zstd_in_a_shard_is_two_frames_a_sample_layer_after_layer(tmp_path: Path) -> None:
    samples = [captured(n) for n in range(3)]
    tensors = load_file(shard_file(store_of(tmp_path / "store", "bf16-zstd", samples), 0))
    start = 0
    for sample, sizes in zip(samples, tensors["plane_sizes"].tolist(), strict=True):
        planes = []
        for size in sizes:
            frame = tensors["state_planes"][start : start + size].tobytes()
            planes.append(pa.CompressedInputStream(pa.BufferReader(frame), "zstd").read())
            start += size
        bits = np.frombuffer(planes[0], "u1").astype("<u2") * 256 + np.frombuffer(planes[1], "u1")
        rows = len(sample.input_ids)
        assert np.array_equal(bits.reshape(4, rows, HIDDEN).swapaxes(0, 1), bits_of(sample.hidden_states))
    assert start == len(tensors["state_planes"])


def test_the_store_digest_of_lossless_storages_is_the_same(tmp_path: Path) -> None:
    samples = [captured(n) for n in range(5)]
    digests = {name: read_manifest(store_of(tmp_path / name, name, samples))["store_digest"] for name in STORAGES}
    assert digests["bf16-zstd"] == digests["bf16"]
    assert digests["fp8"] != digests["bf16"]


def test_states_of_one_scale_a_layer_take_at_most_seven_tenths_of_their_bytes() -> None:
    states = torch.randn(300, 4, 576, generator=torch.Generator().manual_seed(1))
    states *= torch.tensor([0.1, 1, 5, 60])[:, None]
    pieces = storage_of("bf16-zstd").encode(states.to(torch.bfloat16)).pieces
    assert sum(piece.nbytes for piece in pieces.values()) <= 0.70 * 2 * states.numel()


@pytest.mark.parametrize("storage", STORAGES)
def test_a_flipped_bit_anywhere_in_a_shard_is_found(tmp_path: Path, storage: str) -> None:
    folder = store_of(tmp_path / "store", storage, [captured(n) for n in range(4)])
    spec, record, file = StoreSpec.of(folder, read_manifest(folder)), read_sidecar(folder, 0), shard_file(folder, 0)
    assert unit_faults(spec, record) == ([], 0)
    content, rng = file.read_bytes(), random.Random(8)  # noqa: S311 - not for secrets
    spread = {at for _, start, end, _ in tensors_of(content) for at in {start, *rng.choices(range(start, end), k=12)}}
    for at in sorted(spread | set(range(0, 60, 5))):
        bit = 1 << rng.randrange(8)
        file.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
        assert unit_faults(spec, record)[0], f"bit {bit} of byte {at} of {len(content)}"
    assert len(spread) >= 40


def test_a_flipped_bit_that_decodes_to_the_same_states_is_found_too(tmp_path: Path) -> None:
    sample = captured(1)
    folder = store_of(tmp_path / "store", "bf16-zstd", [sample])
    file = shard_file(folder, 0)
    content = bytearray(file.read_bytes())
    start = next(start for name, start, _, _ in tensors_of(bytes(content)) if name == "state_planes")
    content[start + 4] ^= 0x10  # the frame descriptor's unused bit, which decoders ignore (RFC 8878, 3.1.1.1.3)
    file.write_bytes(content)
    assert torch.equal(StoreReader(folder).sample(sample.id).hidden_states, sample.hidden_states)
    faults, _ = unit_faults(StoreSpec.of(folder, read_manifest(folder)), read_sidecar(folder, 0))
    assert "plane_crc32" in faults[0]


def damaged_sizes(sizes: torch.Tensor) -> None:
    sizes[0, 0] += 1
    sizes[0, 1] -= 1


def too_few_sizes(sizes: torch.Tensor) -> None:
    sizes[1, 1] -= 1


def negative_sizes(sizes: torch.Tensor) -> None:
    sizes[0, 1] += sizes[0, 0] + 4
    sizes[0, 0] = -4


@pytest.mark.parametrize("damage", [damaged_sizes, too_few_sizes, negative_sizes])
def test_sizes_that_are_not_the_frames_are_a_value_error(damage: Callable[[torch.Tensor], None]) -> None:
    storage = storage_of("bf16-zstd")
    parts = [storage.encode(captured(n).hidden_states).pieces for n in (1, 2)]
    tensors = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    rows = [len(captured(n).input_ids) for n in (1, 2)]
    damage(tensors["plane_sizes"])
    with pytest.raises(ValueError, match="plane"):
        storage.open(tensors, [0, rows[0], sum(rows)], len(LAYERS), HIDDEN).sample(0)


def test_frames_that_decode_to_more_or_fewer_rows_are_a_value_error() -> None:
    storage = storage_of("bf16-zstd")
    pieces = storage.encode(captured(1).hidden_states).pieces
    rows = len(captured(1).input_ids)
    for wrong in (rows - 1, rows + 1):
        with pytest.raises(ValueError, match="cannot be decoded"):
            storage.open(pieces, [0, wrong], len(LAYERS), HIDDEN).sample(0)
