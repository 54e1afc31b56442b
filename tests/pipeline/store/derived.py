"""What the tests of merge, split and prune share: stores of chosen samples, and looks at what came out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.store.manifest import read_manifest
from pipeline.store.reader import StoreReader
from pipeline.store.records import Rejection
from pipeline.store.writer import Store
from pipeline.verify.integrity import check_integrity
from tests.pipeline.store.fake import captured, identity


def digests(data: str) -> dict[str, str]:
    return {"data": data * 64, "model": "e" * 64, "stack": "f" * 64, "plan": data * 64}


def make(
    folder: Path, units: Sequence[Sequence[int]], *, data: str = "d", rejected: Sequence[Rejection] = (), **changes: Any
) -> Path:
    """A complete store of these units of samples; a unit of none is one whose only sample was rejected."""
    lost = 0
    with Store.open_for_run(folder, identity(digests=digests(data), **changes), {"model_path": "/target"}) as store:
        for number, unit in enumerate(units):
            lost += not unit
            bad = (
                []
                if unit
                else [Rejection(f"bad-{data}-{number}", f"non-finite states at layer {number}", 100 + number)]
            )
            store.write_unit(number, [captured(sample) for sample in unit], bad)
        store.finalise(rejected, sum(map(len, units)) + lost + len(rejected))
    return folder


def faults(store: Path) -> list[str]:
    return check_integrity(store).faults


def digest(store: Path) -> str:
    return str(read_manifest(store)["store_digest"])


def ids(store: Path) -> list[str]:
    return StoreReader(store).ids()


def names(*numbers: int) -> list[str]:
    return [f"sample-{number}" for number in numbers]


def rejections(store: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (store / "rejected.jsonl").read_text().splitlines()]


def counts(store: Path) -> tuple[int, int, int]:
    """Captured, rejected, input."""
    found = read_manifest(store)["counts"]
    return found["captured"], found["rejected"], found["input"]


def shard(store: Path, unit: int) -> Path:
    return store / "shards" / f"{unit:06d}.safetensors"


def same_file(one: Path, two: Path) -> bool:
    return one.stat().st_ino == two.stat().st_ino


def write_ids(folder: Path, *lines: str) -> Path:
    file = folder / "ids.txt"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file
