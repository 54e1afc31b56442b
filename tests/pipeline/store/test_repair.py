"""One flipped bit in any file: verify finds it, repair does the damaged unit again and touches nothing else."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.errors import StoreDamagedError
from pipeline.store.records import Rejection
from pipeline.store.writer import Store
from pipeline.verify.integrity import check_integrity
from tests.pipeline.store.fake import captured, contents, identity

UNITS = 4
PLAN_REJECTED = [Rejection("long", "over 40 tokens", 99)]
FLIPS = 12
"""of each file"""


def write(store: Store, unit: int) -> None:
    """Units of three samples; unit 2 has a rejected one, and of unit 3 all are."""
    samples = [] if unit == 3 else [captured(3 * unit + i) for i in range(3)]
    rejected = [Rejection(f"bad-{unit}", "non-finite states at layer 2", unit + 1)] if unit >= 2 else []
    store.write_unit(unit, samples, rejected)


def complete(folder: Path, *, repair: bool = False) -> list[int]:
    """Do what is missing, as extract does; which units that were."""
    with Store.open_for_run(folder, identity(), repair=repair) as store:
        missing = sorted(set(range(UNITS)) - store.finished_units())
        for unit in missing:
            write(store, unit)
        store.finalise(PLAN_REJECTED, 9 + 2 + 1)
    return missing


def flip(file: Path, bit: int) -> None:
    """In place, and the file keeps its time, as when a disk rots."""
    content, times = bytearray(file.read_bytes()), file.stat()
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in (folder / "shards").iterdir()}


def is_found(folder: Path) -> bool:
    try:
        return bool(check_integrity(folder).faults)
    except StoreDamagedError:
        return True


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("manifest.json", []),
        ("rejected.jsonl", []),
        ("shards/000001.json", [1]),
        ("shards/000003.json", [3]),
        ("shards/000002.safetensors", [2]),
    ],
)
def test_one_flipped_bit_is_found_and_repaired_alone(tmp_path: Path, name: str, damaged: list[int]) -> None:
    folder = tmp_path / "store"
    assert complete(folder) == [0, 1, 2, 3]
    assert not is_found(folder)
    whole, rng = contents(folder), random.Random(name)  # noqa: S311 - not for secrets
    size = 8 * (folder / name).stat().st_size
    for bit in [0, size - 1, *(rng.randrange(size) for _ in range(FLIPS))]:
        before = stamps(folder)
        flip(folder / name, bit)
        assert is_found(folder), f"bit {bit} of {size} was not found"
        assert complete(folder, repair=True) == damaged
        assert contents(folder) == whole
        changed = {file for file, stamp in stamps(folder).items() if stamp != before[file]}
        mine = {file for file in before for unit in damaged if file.startswith(f"{unit:06d}")}
        assert changed == mine


def test_a_flipped_bit_in_each_part_of_a_shard_is_found_and_repaired(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    complete(folder)
    whole, shard = contents(folder), folder / "shards/000000.safetensors"
    header = 8 + int.from_bytes(shard.read_bytes()[:8], "little")
    size = shard.stat().st_size
    for byte in (*range(0, header, 11), *range(header, size, 97), *range(size - 8, size)):  # loss masks come last
        flip(shard, 8 * byte + byte % 8)
        assert is_found(folder), f"a bit of byte {byte} was not found"
        with Store.open_for_run(folder, identity(), repair=True) as store:
            assert store.finished_units() == {1, 2, 3}
            assert sorted(store.discarded) == ["000000.json", "000000.safetensors"]
        complete(folder)
        assert contents(folder) == whole


def test_without_repair_a_run_leaves_what_it_cannot_see_and_says_what_it_can(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    complete(folder)
    flip(folder / "shards/000001.safetensors", 10_000)
    assert complete(folder) == []  # sizes are right
    assert is_found(folder)
    flip(folder / "manifest.json", 900)
    with pytest.raises(StoreDamagedError, match=r"manifest.json"):
        complete(folder)
    assert complete(folder, repair=True) == [1]
    assert not is_found(folder)


def test_several_damaged_files_are_repaired_at_once(tmp_path: Path, filled: Callable[..., Path]) -> None:
    folder = tmp_path / "store"
    complete(folder)
    whole = contents(folder)
    for name in ("manifest.json", "rejected.jsonl", "shards/000000.json", "shards/000002.safetensors"):
        flip(folder / name, 77)
    (folder / "shards/000003.json").unlink()
    assert complete(folder, repair=True) == [0, 2, 3]
    assert contents(folder) == whole
