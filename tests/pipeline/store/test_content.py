"""The hashes and the shard file are what their documentation says, computed here by other means."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pipeline.errors import StoreDamagedError
from pipeline.store.content import non_finite_layers, row_norms
from pipeline.store.digest import store_digest
from pipeline.store.manifest import read_manifest
from pipeline.store.records import CapturedSample
from pipeline.store.sidecar import read_sidecar
from pipeline.store.writer import Store
from tests.pipeline.store.fake import HIDDEN, identity


def test_the_content_hash_is_the_documented_bytes(tmp_path: Path) -> None:
    values = np.arange(2 * 4 * HIDDEN, dtype="<f4").reshape(2, 4, HIDDEN)
    with Store.open_for_run(tmp_path / "store", identity(dtype="float32")) as store:
        store.write_unit(0, [CapturedSample("ü", [5, 70000], [0, 1], torch.from_numpy(values.copy()))])
        store.finalise([], 1)
    expected = hashlib.sha256(
        b'{"dtype":"float32","shape":[2,4,8]}\n'
        + values.tobytes()
        + (5).to_bytes(8, "little")
        + (70000).to_bytes(8, "little")
        + b"\x00\x01"
    ).hexdigest()
    assert json.loads((tmp_path / "store/shards/000000.json").read_bytes())["samples"] == [
        {"id": "ü", "rows": 2, "sha256": expected}
    ]
    line = '["\\u00fc","' + expected + '"]\n'
    assert read_manifest(tmp_path / "store")["store_digest"] == hashlib.sha256(line.encode()).hexdigest()


def test_bfloat16_is_hashed_as_its_16_bit_patterns(tmp_path: Path) -> None:
    states = torch.full((1, 4, HIDDEN), 1.0, dtype=torch.bfloat16)  # 1.0 is 0x3f80
    with Store.open_for_run(tmp_path / "store", identity()) as store:
        store.write_unit(0, [CapturedSample("a", [1], [1], states)])
    body = b'{"dtype":"bfloat16","shape":[1,4,8]}\n' + b"\x80\x3f" * 32 + (1).to_bytes(8, "little") + b"\x01"
    assert read_sidecar(tmp_path / "store", 0).samples[0].sha256 == hashlib.sha256(body).hexdigest()


def test_the_store_digest_sorts_by_id_and_not_by_position() -> None:
    pairs = [("b", "2" * 64), ("a", "1" * 64), ("a1", "3" * 64)]
    text = "".join(json.dumps([name, digest], separators=(",", ":")) + "\n" for name, digest in sorted(pairs))
    assert store_digest(pairs) == hashlib.sha256(text.encode()).hexdigest() == store_digest(pairs[::-1])


def test_shards_are_safetensors_files_of_the_documented_tensors(filled: Callable[..., Path]) -> None:
    folder = filled()
    file = folder / "shards/000002.safetensors"
    tensors = load_file(file)
    rows = [sample.rows for sample in read_sidecar(folder, 2).samples]
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {
        "hidden_states": torch.bfloat16,
        "input_ids": torch.int64,
        "loss_mask": torch.uint8,
        "offsets": torch.int64,
    }
    assert tensors["hidden_states"].shape == (sum(rows), 4, HIDDEN)
    assert tensors["offsets"].tolist() == [0, rows[0], rows[0] + rows[1], sum(rows)]
    assert read_sidecar(folder, 2).bytes == file.stat().st_size


def test_a_records_seal_is_the_documented_sha256_and_finds_any_changed_bit(filled: Callable[..., Path]) -> None:
    file = filled() / "shards/000001.json"
    content = file.read_bytes()
    before, _, after = content.partition(b',"seal":"')
    assert after == hashlib.sha256(before).hexdigest().encode() + b'"}\n'
    assert json.loads(content)["unit"] == 1
    for at in range(len(content)):
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(StoreDamagedError, match="000001"):
            read_sidecar(file.parents[1], 1)


def test_norms_are_those_of_every_row_however_many_are_taken_at_a_time() -> None:
    for rows in (1, 31, 32, 33, 100):
        states = torch.randn(rows, 3, 50, generator=torch.Generator().manual_seed(rows)).to(torch.bfloat16)
        expected = np.sqrt((states.double().numpy() ** 2).sum(axis=-1))
        assert np.allclose(row_norms(states).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_layers_with_non_finite_values_are_found_and_large_values_are_not(value: float) -> None:
    states = torch.full((3, 4, HIDDEN), 3e38, dtype=torch.bfloat16)
    assert non_finite_layers(states, row_norms(states)) == []
    states[1, 2, 5] = value
    assert non_finite_layers(states, row_norms(states)) == [2]
