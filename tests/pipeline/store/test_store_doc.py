"""docs/store.md is enough to read a store by, and to recompute its digests and seals."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.pipeline.store.derived import make
from tests.pipeline.store.fake import captured

DOC = Path(__file__).resolve().parents[3] / "docs" / "store.md"
IDENTITY = "format engine dtype storage hidden_size num_layers vocab_size layer_ids final_norm_applied digests settings"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def sorted_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make(tmp_path / "store", [[0, 1], [], [2]])


def test_its_reader_reads_every_sample(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, training = re.findall(r"^```python\n(.*?)^```", DOC.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(store.parent)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - it is this repository's
    assert sorted(names["samples"]) == ["sample-0", "sample-1", "sample-2"]
    for number in range(3):
        found, expected = names["samples"][f"sample-{number}"], captured(number)
        assert torch.equal(found["hidden_states"], expected.hidden_states)
        assert found["input_ids"].tolist() == expected.input_ids
        assert found["loss_mask"].tolist() == expected.loss_mask
    exec(training, names)  # noqa: S102 - it is this repository's
    assert names["sample"]["id"] in names["samples"]


def test_digests_and_seals_are_what_it_says(store: Path) -> None:
    manifest = json.loads((store / "manifest.json").read_bytes())
    seal = manifest.pop("seal")
    assert seal == sha256(sorted_json(manifest))
    files = sorted((store / "shards").glob("*.json"))
    assert manifest["sidecars_sha256"] == sha256(b"".join(line([f.name, sha256(f.read_bytes())]) for f in files))
    assert manifest["rejected_sha256"] == sha256((store / "rejected.jsonl").read_bytes())
    records = [json.loads(file.read_bytes()) for file in files]
    content = {sample["id"]: sample["sha256"] for record in records for sample in record["samples"]}
    assert manifest["store_digest"] == sha256(b"".join(line([name, content[name]]) for name in sorted(content)))
    identity = sha256(sorted_json({name: manifest[name] for name in IDENTITY.split()}))
    assert {record["identity"] for record in records} == {identity}


def test_every_field_of_manifest_and_record_is_in_it(store: Path) -> None:
    text = DOC.read_text(encoding="utf-8")
    manifest = json.loads((store / "manifest.json").read_bytes())
    record = json.loads((store / "shards/000000.json").read_bytes())
    fields = {
        *manifest,
        *manifest["counts"],
        *manifest["digests"],
        *record,
        *record["layers"][0],
        *record["samples"][0],
    }
    assert {name for name in fields if f"`{name}`" not in text} == set()
