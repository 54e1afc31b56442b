"""Stores that were written once, when their format was new, are read by every later version; and by strangers."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pytest
import torch

from pipeline.store.dataset import HiddenStateDataset
from pipeline.store.reader import StoreReader
from pipeline.verify.integrity import check_integrity
from tests.golden.formula import HIDDEN, LAYERS, REJECTED, UNITS, input_ids, loss_mask, states

GOLDEN = Path(__file__).parents[2] / "golden"
LOSSLESS = ["store-2-bf16", "store-2-bf16-zstd"]
SAMPLES = {name: rows for samples in UNITS.values() for name, rows in samples.items()}


def test_every_golden_store_is_here() -> None:
    assert sorted(path.name for path in GOLDEN.glob("store-*")) == [*LOSSLESS, "store-2-fp8"]


@pytest.mark.parametrize("name", LOSSLESS)
def test_lossless_golden_stores_read_as_their_formula(name: str) -> None:
    dataset = HiddenStateDataset(GOLDEN / name, check="digests")
    assert [sample["id"] for sample in dataset] == list(SAMPLES)
    for sample in dataset:
        assert sample["hidden_states"].dtype == torch.bfloat16
        assert sample["hidden_states"].float().tolist() == states(sample["id"], SAMPLES[sample["id"]])


def e4m3_values() -> list[float]:
    """What the codes 0 to 126 mean, smallest first: 4 bits of exponent (bias 7), 3 of mantissa; 127 is NaN."""
    return [(code % 8) * 2.0**-9 if code < 8 else (8 + code % 8) * 2.0 ** (code // 8 - 10) for code in range(127)]


def float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bfloat16(value: float) -> float:
    """Rounded to nearest, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    bits += 0x7FFF + (bits >> 16 & 1)
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]


def through_fp8(row: list[float], values: list[float]) -> list[float]:
    """A row of one layer as docs/store.md says that it is rounded."""
    largest = max(map(abs, row))
    scale = float32(largest / 448) if largest else 1.0
    rounded = []
    for state in row:
        wanted = abs(float32(state / scale))
        code = min(range(127), key=lambda code: (abs(values[code] - wanted), code % 2))
        rounded.append(bfloat16(float32(values[code] * scale)) * (-1 if state < 0 else 1))
    return rounded


def test_the_golden_fp8_store_reads_as_its_formula_rounded_as_documented() -> None:
    values = e4m3_values()
    for sample in HiddenStateDataset(GOLDEN / "store-2-fp8", check="digests"):
        exact = states(sample["id"], SAMPLES[sample["id"]])
        expected = [[through_fp8(layer, values) for layer in row] for row in exact]
        assert sample["hidden_states"].float().tolist() == expected
        assert expected != exact


@pytest.mark.parametrize("name", [*LOSSLESS, "store-2-fp8"])
def test_golden_stores_are_sound_and_hold_tokens_masks_and_rejections(name: str) -> None:
    assert check_integrity(GOLDEN / name).faults == []
    reader = StoreReader(GOLDEN / name)
    assert reader.units == list(UNITS)
    for sample, rows in SAMPLES.items():
        there = reader.sample(sample)
        assert there.input_ids.tolist() == input_ids(sample, rows)
        assert there.loss_mask.tolist() == loss_mask(rows)
    (line,) = (GOLDEN / name / "rejected.jsonl").read_text().splitlines()
    assert (json.loads(line)["id"], json.loads(line)["line"], json.loads(line)["reason"]) == REJECTED[1]


def test_a_stranger_reads_a_store_by_its_documentation_with_the_standard_library() -> None:
    """docs/store.md turned into code, and the safetensors format; nothing of the project."""
    store = GOLDEN / "store-2-bf16"
    manifest = json.loads((store / "manifest.json").read_bytes())
    assert (manifest["status"], manifest["storage"], manifest["layer_ids"]["output"]) == (
        "complete",
        "bf16",
        list(LAYERS),
    )
    lines = []
    for file in sorted((store / "shards").glob("*.safetensors")):
        record = json.loads(file.with_suffix(".json").read_bytes())
        shard = file.read_bytes()
        start = 8 + int.from_bytes(shard[:8], "little")
        tensors = {
            name: shard[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]
            for name, entry in json.loads(shard[8:start]).items()
            if name != "__metadata__"
        }
        offsets = [number for (number,) in struct.iter_unpack("<q", tensors["offsets"])]
        for at, sample in enumerate(record["samples"]):
            first, rows = offsets[at], offsets[at + 1] - offsets[at]
            width = len(LAYERS) * HIDDEN * 2
            bits = tensors["hidden_states"][first * width : (first + rows) * width]
            tokens, mask = tensors["input_ids"][first * 8 :][: rows * 8], tensors["loss_mask"][first:][:rows]
            head = b'{"dtype":"bfloat16","shape":[%d,%d,%d]}\n' % (rows, len(LAYERS), HIDDEN)
            assert sample["sha256"] == hashlib.sha256(head + bits + tokens + mask).hexdigest()
            flat = [struct.unpack("<f", b"\0\0" + bits[i : i + 2])[0] for i in range(0, len(bits), 2)]
            assert flat == [value for row in states(sample["id"], rows) for layer in row for value in layer]
            assert [number for (number,) in struct.iter_unpack("<q", tokens)] == input_ids(sample["id"], rows)
            assert list(mask) == loss_mask(rows)
            lines.append((sample["id"], sample["sha256"]))
    assert sorted(name for name, _ in lines) == sorted(SAMPLES)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in sorted(lines))
    assert manifest["store_digest"] == hashlib.sha256(text.encode()).hexdigest()
