"""Units in the background: on the disk in order, their memory free early, and never more than two on their way."""

from __future__ import annotations

import errno
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest
import torch

from pipeline.errors import NoSpaceError, SettingsError, StoreBusyError
from pipeline.store import committer as committers
from pipeline.store import durable
from pipeline.store import unit as units
from pipeline.store.committer import Committer
from pipeline.store.content import row_norms
from pipeline.store.records import Rejection, UnitOrder
from pipeline.store.sidecar import read_sidecar
from pipeline.store.writer import Store
from tests.pipeline.store.fake import contents, identity, order, submit

PATIENCE = 10.0
"""Seconds that something which happens at once may take on a busy machine."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open_for_run(tmp_path / "store", identity()) as store:
        yield store


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.001)


@contextmanager
def stuck_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk that finishes nothing until the event is set."""
    released, fsync = threading.Event(), os.fsync

    def stuck(handle: int) -> None:
        assert released.wait(PATIENCE)
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(durable.os, "fsync", stuck)
        try:
            yield released
        finally:
            released.set()


def test_units_in_the_background_are_the_same_files_as_units_written_one_by_one(
    store: Store, filled: Callable[..., Path]
) -> None:
    with Committer(store.spec) as committer:
        for unit in range(4):
            submit(committer, unit)
        committed = committer.committed(wait=True)
    store.finalise([], 12)
    assert committed.failure is None
    assert [report.unit for report in committed.reports] == [0, 1, 2, 3]
    for report in committed.reports:
        there = read_sidecar(store.folder, report.unit)
        assert (report.samples, report.rows, report.bytes) == (3, there.rows, there.bytes)
    assert contents(store.folder) == contents(filled("one-by-one"))


def test_content_name_and_folder_are_synced_in_this_order_the_record_last(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, fsync, rename = list[str](), os.fsync, Path.rename

    def noted_fsync(handle: int) -> None:
        fsync(handle)
        done.append("sync " + Path(f"/proc/self/fd/{handle}").readlink().name)

    def noted_rename(old: Path, new: Path) -> Path:
        done.append(f"name {new.name}")
        return rename(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    with Committer(store.spec) as committer:
        submit(committer, 0)
    assert done == [
        *("sync 000000.safetensors.tmp", "name 000000.safetensors", "sync shards"),
        *("sync 000000.json.tmp", "name 000000.json", "sync shards"),
    ]


def test_what_was_committed_is_told_once(store: Store) -> None:
    with Committer(store.spec) as committer:
        submit(committer, 0)
        submit(committer, 1)
        assert len(committer.committed(wait=True).reports) == 2
        submit(committer, 2)
        assert [report.unit for report in committer.committed(wait=True).reports] == [2]
        assert committer.committed() == committers.Committed([], None)


def test_a_sample_with_non_finite_states_is_rejected_by_layer_and_the_rest_kept(store: Store) -> None:
    unit, states, _ = order(0, range(3))
    rows = len(unit.samples[0].input_ids)
    states[rows, 1, 0], states[rows, 3, 5] = float("nan"), float("inf")  # the second sample's first row
    known = Rejection("x", "cannot be captured", 9)
    with Committer(store.spec) as committer:
        committer.submit(UnitOrder(0, unit.samples, (known,)), states, row_norms(states), lambda: None)
        (report,) = committer.committed(wait=True).reports
    reason = "non-finite states at layer 2, 5"
    assert report.rejected == (known, Rejection("sample-1", reason, 2))
    assert [sample.id for sample in read_sidecar(store.folder, 0).samples] == ["sample-0", "sample-2"]


def test_with_a_slow_disk_two_units_are_on_their_way_and_the_third_keeps_its_buffer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed = []
    with stuck_disk(monkeypatch) as released, Committer(store.spec) as committer:
        for unit in range(4):
            submit(committer, unit, lambda unit=unit: freed.append(unit))  # type: ignore[misc]
        wait_until(lambda: len(freed) == 2)
        time.sleep(0.2)  # for a third to be written if nothing held it back
        assert freed == [0, 1]
        names = sorted(file.name for file in (store.folder / "shards").iterdir())
        assert names == ["000000.safetensors.tmp", "000001.safetensors.tmp"]
        assert committer.committed() == committers.Committed([], None)
        released.set()
        assert len(committer.committed(wait=True).reports) == 4
    assert freed == [0, 1, 2, 3]


def test_a_producer_with_two_buffers_waits_for_the_disk_and_no_states_pile_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffers = SimpleQueue[None]()
    gone, most, filled = list[int](), 0, 0

    def produce() -> None:
        nonlocal most, filled
        for unit in range(8):
            buffers.get()
            ordered, states, norms = order(unit, range(3 * unit, 3 * unit + 3))
            array = states.view(torch.int16).numpy().copy()
            weakref.finalize(array, gone.append, unit)
            most, filled = max(most, unit + 1 - len(gone)), unit + 1
            states = torch.from_numpy(array).view(torch.bfloat16)
            del array
            committer.submit(ordered, states, norms, lambda: buffers.put(None))
            del states

    buffers.put(None)
    buffers.put(None)
    with stuck_disk(monkeypatch) as released, Committer(store.spec) as committer:
        producer = threading.Thread(target=produce)
        producer.start()
        wait_until(lambda: filled == 4)
        time.sleep(0.2)
        assert filled == 4  # two written, two in the buffers
        released.set()
        producer.join()
        assert len(committer.committed(wait=True).reports) == 8
        gc.collect()
        assert sorted(gone) == list(range(8))
    assert most <= 3  # the buffers, and one that is let go of just now


def test_a_failure_is_told_once_and_nothing_is_written_after_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (store.folder / "shards" / "000002.safetensors.tmp").symlink_to("/dev/full")
    freed = []
    with Committer(store.spec) as committer:
        for unit in range(5):
            submit(committer, unit, lambda unit=unit: freed.append(unit))  # type: ignore[misc]
        committed = committer.committed(wait=True)
        assert committer.committed(wait=True) == committers.Committed([], None)
    assert [report.unit for report in committed.reports] == [0, 1]
    assert isinstance(committed.failure, NoSpaceError)
    assert freed == [0, 1, 2, 3, 4]
    assert store.finished_units() == {0, 1}
    assert len(list((store.folder / "shards").iterdir())) == 4


def test_a_unit_that_was_written_before_a_failing_one_is_still_committed(store: Store) -> None:
    (store.folder / "shards" / "000001.safetensors.tmp").symlink_to("/dev/full")
    freed, syncer_busy = list[int](), threading.Event()
    with Committer(store.spec) as committer:
        committer._syncer.submit(syncer_busy.wait, PATIENCE)
        submit(committer, 0)
        submit(committer, 1, lambda: freed.append(1))
        wait_until(lambda: freed == [1])  # unit 1 has failed, unit 0 waits to be synced
        syncer_busy.set()
        committed = committer.committed(wait=True)
    assert [report.unit for report in committed.reports] == [0]
    assert isinstance(committed.failure, NoSpaceError)


def test_after_a_failed_sync_a_unit_that_was_written_already_is_not_committed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store.folder / "shards" / "000000.json.tmp").symlink_to("/dev/full")  # the shard is synced, its record fails
    freed = []
    with stuck_disk(monkeypatch) as released, Committer(store.spec) as committer:
        submit(committer, 0)
        submit(committer, 1, lambda: freed.append(1))
        wait_until(lambda: freed == [1])
        released.set()
        committed = committer.committed(wait=True)
    assert (committed.reports, type(committed.failure)) == ([], NoSpaceError)
    assert [file.name for file in (store.folder / "shards").iterdir()] == ["000000.safetensors"]


def test_once_a_unit_has_failed_no_other_is_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (store.folder / "shards" / "000001.safetensors.tmp").symlink_to("/dev/full")
    created, new_file = list[str](), units.NewFile
    monkeypatch.setattr(units, "NewFile", lambda file: created.append(file.name) or new_file(file))
    with Committer(store.spec) as committer:
        for unit in range(4):
            submit(committer, unit)
    assert created == ["000000.safetensors", "000001.safetensors"]


def test_a_unit_whose_folder_refuses_even_its_removal_fails_with_the_first_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with stuck_disk(monkeypatch) as released, Committer(store.spec) as committer:
        freed = []
        for unit in range(2):
            submit(committer, unit, lambda unit=unit: freed.append(unit))  # type: ignore[misc]
        wait_until(lambda: freed == [0, 1])
        monkeypatch.setattr(Path, "rename", read_only)
        monkeypatch.setattr(Path, "unlink", read_only)
        released.set()
        failures = [unit.exception() for unit in committer._units]
    assert [type(failure) for failure in failures] == [SettingsError, SettingsError]
    assert "Read-only file system" in str(failures[0])


def test_a_store_has_one_writer_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committers, "WORKER_PATIENCE", 0.1)
    with Committer(store.spec), pytest.raises(StoreBusyError, match=f"is being written by process {os.getpid()}"):
        Committer(store.spec)
    with Committer(store.spec):
        pass


def test_its_threads_run_on_the_cpus_they_are_given(store: Store) -> None:
    cpu = max(os.sched_getaffinity(0))
    found = []
    with Committer(store.spec, cpus=[cpu]) as committer:
        submit(committer, 0, lambda: found.append(os.sched_getaffinity(0)))
    assert found == [{cpu}]
