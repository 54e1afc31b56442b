"""A trainer gets every sample as it was captured, from any process, in any order, and learns of what is wrong."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from pipeline.errors import InputError, StoreDamagedError
from pipeline.store import dataset as datasets
from pipeline.store.dataset import HiddenStateDataset, Sample
from pipeline.store.records import CapturedSample, Rejection
from pipeline.store.shuffle import ShardShuffle
from pipeline.store.writer import Store
from tests.pipeline.store.fake import captured, identity


def make(folder: Path, storage: str = "bf16", units: int = 5) -> Path:
    """Units of three samples, the second one with none: all of its samples were rejected."""
    with Store.open_for_run(folder, identity(storage=storage)) as store:
        for unit in range(units):
            samples = [] if unit == 1 else [captured(3 * unit + i) for i in range(3)]
            store.write_unit(unit, samples, [Rejection("x", "reason", 4)] if unit == 1 else [])
        store.finalise([], 3 * units - 2)
    return folder


def check_sample(sample: Sample) -> int:
    number = int(sample["id"].removeprefix("sample-"))
    expected = captured(number)
    assert torch.equal(sample["hidden_states"].view(torch.int16), expected.hidden_states.view(torch.int16))
    assert sample["input_ids"].tolist() == expected.input_ids
    assert sample["loss_mask"].tolist() == expected.loss_mask
    return number


NUMBERS = [0, 1, 2, *range(6, 15)]


@pytest.mark.parametrize("storage", ["bf16", "bf16-zstd"])
@pytest.mark.parametrize("check", ["none", "lengths", "digests"])
def test_samples_come_by_number_as_they_were_captured(tmp_path: Path, storage: str, check: datasets.Check) -> None:
    dataset = HiddenStateDataset(make(tmp_path / "store", storage), check=check)
    assert [check_sample(sample) for sample in dataset] == NUMBERS
    assert [check_sample(dataset[at]) for at in (11, -1, 0, 5)] == [14, 14, 0, 8]
    assert dataset.rows.tolist() == [len(captured(number).input_ids) for number in NUMBERS]
    with pytest.raises(IndexError):
        dataset[12]


@pytest.mark.parametrize("storage", ["bf16", "bf16-zstd", "fp8"])
@pytest.mark.parametrize("ahead", [0, 2000, datasets.READ_AHEAD])
def test_samples_in_order_are_those_by_number_in_any_storage(tmp_path: Path, storage: str, ahead: int) -> None:
    dataset = HiddenStateDataset(make(tmp_path / "store", storage))
    order = [11, 3, 3, -1, 0, 7]
    read = list(dataset.in_order(order, ahead))
    assert [sample["id"] for sample in read] == [dataset[at]["id"] for at in order]
    assert all(torch.equal(a["hidden_states"], dataset[at]["hidden_states"]) for a, at in zip(read, order, strict=True))


def bytes_from_disk() -> int:
    """That this process has had read."""
    io = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(io["read_bytes"])


def test_the_disk_begins_with_the_next_sample_while_one_is_used(tmp_path: Path) -> None:
    rows = torch.zeros(1 << 11, 4, 576, dtype=torch.bfloat16)  # 9 MB: more than the kernel reads unasked
    tokens = [1] * len(rows)
    with Store.open_for_run(tmp_path / "store", identity(hidden_size=576)) as store:
        for unit in range(3):
            store.write_unit(unit, [CapturedSample(str(unit), tokens, tokens, rows)])
        store.finalise([], 3)
    for file in (tmp_path / "store/shards").glob("*.safetensors"):
        drop_from_cache(file)
    before = bytes_from_disk()
    first = next(HiddenStateDataset(tmp_path / "store").in_order([0, 1, 2], ahead=0))
    read = bytes_from_disk() - before
    if not read:
        pytest.skip("this file system lies in memory, so nothing is read ahead")
    # The first sample's states have not been looked at yet.
    assert 1.9 * first["hidden_states"].nbytes < read < 2.5 * first["hidden_states"].nbytes


def drop_from_cache(file: Path) -> None:
    handle = os.open(file, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def test_a_damaged_shard_is_refused_when_its_samples_turn_comes(tmp_path: Path) -> None:
    dataset = HiddenStateDataset(make(tmp_path / "store"))
    os.truncate(tmp_path / "store/shards/000002.safetensors", 10)
    read = dataset.in_order([0, 1, 2, 3, 6])
    assert [check_sample(next(read)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(StoreDamagedError, match="000002"):
        next(read)
    with pytest.raises(IndexError):
        list(dataset.in_order([0, 12]))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_read_every_sample_once(tmp_path: Path, method: str) -> None:
    dataset = HiddenStateDataset(make(tmp_path / "store"), check="digests")
    check_sample(dataset[0])  # a shard is open when the workers start
    loader = DataLoader(
        dataset,
        batch_size=None,
        sampler=ShardShuffle(dataset, seed=3),
        num_workers=2,
        multiprocessing_context=method,
    )
    assert sorted(check_sample(sample) for sample in loader) == NUMBERS


def test_a_pickled_dataset_holds_no_mapping_and_reads_the_same(tmp_path: Path) -> None:
    dataset = HiddenStateDataset(make(tmp_path / "store"))
    closed = len(pickle.dumps(dataset))
    list(dataset)
    assert len(pickle.dumps(dataset)) == closed
    assert [check_sample(sample) for sample in pickle.loads(pickle.dumps(dataset))] == NUMBERS  # noqa: S301 - our own


@pytest.mark.parametrize("storage", ["bf16", "bf16-zstd", "fp8"])
def test_a_samples_tensors_have_storages_of_their_own(tmp_path: Path, storage: str) -> None:
    for sample in HiddenStateDataset(make(tmp_path / "store", storage)):
        for tensor in (sample["hidden_states"], sample["input_ids"], sample["loss_mask"]):
            assert tensor.untyped_storage().nbytes() == tensor.nbytes


def mapped(folder: Path) -> int:
    """Shards of a store that this process has mapped."""
    return sum(str(folder) in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_only_so_many_shards_stay_open_and_samples_outlive_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "OPEN_SHARDS", 2)
    folder = make(tmp_path / "store", units=9)
    dataset = HiddenStateDataset(folder)
    first = dataset[0]
    for at in range(3, 24):
        dataset[at]
        assert mapped(folder) <= 3
    assert check_sample(first) == 0
    del first
    assert mapped(folder) == 2
    del dataset
    assert mapped(folder) == 0


def test_a_changed_bit_is_found_at_the_first_read_where_digests_are_asked_for(tmp_path: Path) -> None:
    file = make(tmp_path / "store") / "shards/000002.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1  # the loss mask of the shard's last sample
    file.write_bytes(content)
    for check in ("none", "lengths"):
        assert HiddenStateDataset(tmp_path / "store", check=check)[5]["id"] == "sample-8"
    dataset = HiddenStateDataset(tmp_path / "store", check="digests")
    check_sample(dataset[4])
    for _ in range(2):
        with pytest.raises(
            StoreDamagedError, match=r"sample 'sample-8' of .*000002.safetensors is not what was written"
        ):
            dataset[5]


def cut_off(shard: Path, _: Path) -> None:
    os.truncate(shard, shard.stat().st_size - 1)


def of_another_unit(shard: Path, other: Path) -> None:
    shard.write_bytes(other.read_bytes())


def other_lengths(shard: Path, _: Path) -> None:
    """A token moves from the first sample to the second; the file stays a good shard of the same size."""
    content = shard.read_bytes()
    first = len(captured(6).input_ids)
    before, after = (
        n.to_bytes(8, "little") + (first + len(captured(7).input_ids)).to_bytes(8, "little") for n in (first, first - 1)
    )
    assert content.count(before) == 1
    shard.write_bytes(content.replace(before, after))


@pytest.mark.parametrize("damage", [cut_off, of_another_unit, other_lengths])
@pytest.mark.parametrize("check", ["lengths", "digests"])
def test_shards_that_are_not_as_long_as_their_records_say_are_refused(
    tmp_path: Path, check: datasets.Check, damage: Callable[[Path, Path], None]
) -> None:
    shards = make(tmp_path / "store") / "shards"
    dataset = HiddenStateDataset(tmp_path / "store", check=check)
    damage(shards / "000002.safetensors", shards / "000003.safetensors")
    check_sample(dataset[2])
    with pytest.raises(StoreDamagedError, match="000002"):
        dataset[3]


def test_an_unfinished_store_is_refused_unless_allowed(tmp_path: Path) -> None:
    with Store.open_for_run(tmp_path / "store", identity()) as store:
        store.write_unit(3, [captured(0), captured(1)])
    with pytest.raises(InputError, match="is not finished: run extract again"):
        HiddenStateDataset(tmp_path / "store")
    assert [check_sample(sample) for sample in HiddenStateDataset(tmp_path / "store", allow_incomplete=True)] == [0, 1]


def test_a_finished_store_that_lost_a_unit_is_refused_unless_allowed(tmp_path: Path) -> None:
    (make(tmp_path / "store") / "shards/000002.json").unlink()
    with pytest.raises(StoreDamagedError, match="4 of its 5 units"):
        HiddenStateDataset(tmp_path / "store")
    dataset = HiddenStateDataset(tmp_path / "store", allow_incomplete=True)
    assert [check_sample(sample) for sample in dataset] == [0, 1, 2, *range(9, 15)]


def test_a_shuffle_takes_shard_after_shard_and_every_sample_once(tmp_path: Path) -> None:
    dataset = HiddenStateDataset(make(tmp_path / "store", units=9))
    order = list(ShardShuffle(dataset, seed=1))
    assert sorted(order) == list(range(24)) == list(range(len(ShardShuffle(dataset, seed=1))))
    shards = [dataset.index.place(number)[0] for number in order]
    assert shards == [shard for shard in dict.fromkeys(shards) for _ in range(3)]
    assert list(dict.fromkeys(shards)) != sorted(set(shards))
    assert any(order[at : at + 3] != sorted(order[at : at + 3]) for at in range(0, 24, 3))


def test_a_shuffle_is_the_same_for_a_seed_and_an_epoch_and_differs_between_them(tmp_path: Path) -> None:
    dataset = HiddenStateDataset(make(tmp_path / "store", units=9))
    orders = set[tuple[int, ...]]()
    for seed in (0, 1):
        for epoch in (0, 1):
            one, two = ShardShuffle(dataset, seed), ShardShuffle(dataset, seed)
            one.set_epoch(epoch)
            two.set_epoch(epoch)
            assert list(one) == list(two) == list(one)
            orders.add(tuple(one))
    assert len(orders) == 4


def test_a_compressed_shard_of_other_states_for_the_same_lengths_is_refused_by_its_size(tmp_path: Path) -> None:
    folder = make(tmp_path / "store", "bf16-zstd")
    zeros = [replace(captured(n), hidden_states=torch.zeros_like(captured(n).hidden_states)) for n in (6, 7, 8)]
    with Store.open_for_run(tmp_path / "other", identity(storage="bf16-zstd")) as other:
        other.write_unit(2, zeros)
    dataset, name = HiddenStateDataset(folder, check="lengths"), "shards/000002.safetensors"
    (folder / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(StoreDamagedError, match=r"000002.safetensors has not the .* bytes that its record says"):
        dataset[3]
