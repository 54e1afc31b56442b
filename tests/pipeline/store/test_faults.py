"""Full disks, folders that go read-only or away, clocks that fall, two runs, and a writer that outlives its run.

Each is one line to the user, costs no finished unit, and the next run gives the store of a run that nothing befell.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.errors import NoSpaceError, SettingsError, StoreBusyError, UserError
from pipeline.store import durable, writer
from pipeline.store.committer import Committer
from pipeline.store.layout import WRITER_LOCK
from pipeline.store.lock import StoreLock
from pipeline.store.writer import Store
from tests.pipeline.store.fake import captured, contents, identity, submit

UNITS = 10


def run(folder: Path, before: Callable[[int], None] = lambda unit: None) -> None:
    """A whole run; `before` is called before each unit is submitted."""
    with Store.open_for_run(folder, identity()) as store:
        finished = store.finished_units()
        with Committer(store.spec) as committer:
            for unit in (unit for unit in range(UNITS) if unit not in finished):
                before(unit)
                submit(committer, unit)
                stop_if_failed(committer, wait=True)
        store.finalise([], 3 * UNITS)


def stop_if_failed(committer: Committer, *, wait: bool) -> None:
    if failure := committer.committed(wait=wait).failure:
        raise failure


def finished(folder: Path) -> list[int]:
    return sorted(int(file.stem) for file in (folder / "shards").glob("*.json"))


def check_whole(folder: Path) -> None:
    """Units are finished in a row from the first, and there is no other file but the next one's shard."""
    done = finished(folder)
    names = {f"{unit:06d}.{kind}" for unit in done for kind in ("json", "safetensors")}
    assert done == list(range(len(done)))
    assert {file.name for file in (folder / "shards").iterdir()} - names <= {f"{len(done):06d}.safetensors"}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The store of a run that nothing befell."""
    folder = tmp_path_factory.mktemp("straight")
    run(folder)
    return contents(folder)


def assert_one_line(error: UserError) -> None:
    assert "\n" not in str(error)
    assert "run again" in str(error) or "run extract again" in str(error) or "cannot" in str(error)


class SimulatedDisk:
    """The kernel's answer to a full disk, for machines where no small one can be mounted: half a piece, then ENOSPC."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self._free = folder, 0
        write_all = durable._write_all

        def limited(write: Callable[[memoryview], int | None], piece: memoryview) -> None:
            if len(piece) > self._free:
                write_all(write, piece[: self._free])
                self._free = 0
                raise OSError(28, "No space left on device")
            self._free -= len(piece)
            write_all(write, piece)

        patch.setattr(durable, "_write_all", limited)

    def resize(self, pages: int) -> None:
        self._free = pages * 4096


class SmallDisk:
    """A tmpfs of a few pages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4k", "eyas-test", folder], stderr=subprocess.PIPE, check=False
        )
        if mounted.returncode:
            pytest.skip(f"no disk can be mounted here ({mounted.stderr.decode().strip()}): only the simulated one is")

    def resize(self, pages: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={pages * 4}k", self.folder], check=True)

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", self.folder], check=True)


@pytest.fixture(params=["a real disk", "a simulated disk"])
def disk(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SmallDisk | SimulatedDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if request.param == "a simulated disk":
        yield SimulatedDisk(folder, monkeypatch)
        return
    real = SmallDisk(folder)
    try:
        yield real
    finally:
        real.close()


def test_wherever_the_disk_fills_up_whole_units_stay_and_a_later_run_goes_on(
    disk: SmallDisk | SimulatedDisk, straight: dict[str, bytes]
) -> None:
    stops = set()
    for pages in itertools.count(1):
        store = disk.folder / "store"
        shutil.rmtree(store, ignore_errors=True)
        disk.resize(pages)
        try:
            run(store)
        except UserError as error:
            assert isinstance(error, NoSpaceError), error
            assert_one_line(error)
        else:
            break
        if (store / "shards").exists():
            check_whole(store)
            stops.add(len(finished(store)))
        disk.resize(1000)
        run(store)
        assert contents(store) == straight
    assert stops == set(range(UNITS + 1)), "not every unit was once the one that did not fit"


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder that this process may not write to; root, who may always, becomes somebody else meanwhile."""
    (folder / "shards").chmod(0o777) if (folder / "shards").exists() else None
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o777)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that other users can reach; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@pytest.mark.parametrize("where", ["shards", "."])
def test_a_folder_that_becomes_read_only_is_one_line_and_the_next_run_goes_on(
    public: Path, where: str, straight: dict[str, bytes]
) -> None:
    folder = public / "store"
    with Store.open_for_run(folder, identity()) as store, Committer(store.spec) as committer:
        submit(committer, 0)
        stop_if_failed(committer, wait=True)
        with read_only(folder / where):
            submit(committer, 1)
            failure = committer.committed(wait=True).failure
            if where == "shards":
                assert isinstance(failure, SettingsError)
                assert "000001" in str(failure)
                assert_one_line(failure)
            else:  # shards are not written there: what fails is the end
                assert failure is None
                with pytest.raises(SettingsError, match="Permission denied") as raised:
                    store.finalise([], 6)
                assert_one_line(raised.value)
    check_whole(folder)
    assert len(finished(folder)) == (1 if where == "shards" else 2)
    run(folder)
    assert contents(folder) == straight


@pytest.mark.parametrize("where", [".", "shards"])
def test_a_run_on_a_read_only_store_is_one_line_and_costs_no_finished_unit(
    public: Path, where: str, straight: dict[str, bytes]
) -> None:
    folder = public / "store"
    run(folder)
    (folder / "shards" / "000003.json").unlink()
    (folder / "shards" / "000099.safetensors.tmp").touch()
    for file in folder.glob(".*lock"):
        file.chmod(0o666)
    with read_only(folder / where), pytest.raises(SettingsError) as raised:
        run(folder)
    assert_one_line(raised.value)
    assert finished(folder) == [unit for unit in range(UNITS) if unit != 3]
    run(folder)
    assert contents(folder) == straight


@pytest.mark.parametrize("moment", ["before a shard is written", "before a shard gets its name"])
def test_a_folder_that_vanishes_is_one_line_and_once_it_is_back_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, straight: dict[str, bytes]
) -> None:
    folder, elsewhere = tmp_path / "store", tmp_path / "elsewhere"

    def vanish(unit: int) -> None:
        if unit == 4 and moment == "before a shard is written":
            folder.rename(elsewhere)
        elif unit == 4:
            monkeypatch.setattr(durable.os, "fsync", lambda _: folder.exists() and folder.rename(elsewhere))

    with pytest.raises(SettingsError, match=r"000004.*No such file or directory") as raised:
        run(folder, before=vanish)
    assert_one_line(raised.value)
    assert not folder.exists()
    monkeypatch.undo()
    elsewhere.rename(folder)
    assert finished(folder) == [0, 1, 2, 3]
    run(folder)
    assert contents(folder) == straight


def test_a_clock_that_goes_backwards_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, straight: dict[str, bytes]
) -> None:
    falling = itertools.count(1_700_000_000, -3600)
    monkeypatch.setattr(time, "time", lambda: float(next(falling)))
    monkeypatch.setattr(time, "time_ns", lambda: next(falling) * 10**9)
    (tmp_path / "store").mkdir()
    with a_process_that(lambda: holds_the_writers_lock(tmp_path / "store", seconds=0.5)):
        with pytest.raises(StoreBusyError):
            StoreLock(tmp_path / "store", WRITER_LOCK, patience=0.1)  # patience ends though the clock goes back
        run(tmp_path / "store")
    for file in (tmp_path / "store").rglob("*"):
        os.utime(file, (0, 0))
    run(tmp_path / "store")
    assert contents(tmp_path / "store") == straight


def test_while_a_run_writes_a_second_one_is_refused_and_changes_nothing(
    tmp_path: Path, straight: dict[str, bytes]
) -> None:
    folder = tmp_path / "store"
    refused = []

    def second(unit: int) -> None:
        there = contents(folder)
        with pytest.raises(StoreBusyError, match=f"process {os.getpid()} on "):
            run(folder)
        assert contents(folder) == there
        refused.append(unit)

    run(folder, before=second)
    assert refused == list(range(UNITS))
    assert contents(folder) == straight


@contextmanager
def a_process_that(does: Callable[[], None]) -> Iterator[int]:
    """A forked process that has begun: `does` calls `begun` in it."""
    global _ready
    reading, _ready = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            does()
        finally:
            os._exit(0)
    os.close(_ready)
    assert os.read(reading, 1) == b"!"
    os.close(reading)
    try:
        yield child
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.waitpid(child, 0)


_ready = -1


def begun() -> None:
    os.write(_ready, b"!")


def holds_the_writers_lock(folder: Path, seconds: float) -> None:
    StoreLock(folder, WRITER_LOCK)
    begun()
    time.sleep(seconds)


def test_the_next_run_waits_for_a_writer_that_outlives_its_run_and_keeps_what_it_commits(
    tmp_path: Path, straight: dict[str, bytes]
) -> None:
    folder = tmp_path / "store"
    with Store.open_for_run(folder, identity()) as store:
        spec = store.spec
    may_go_on, go_on = os.pipe()
    fsync = os.fsync

    def slow(handle: int) -> None:
        if "000000.safetensors.tmp" in {file.name for file in spec.folder.glob("shards/*")} and not told:
            told.append(True)
            begun()
            os.read(may_go_on, 1)
        fsync(handle)

    told = list[bool]()

    def outlives() -> None:
        durable.os.fsync = slow  # type: ignore[assignment]
        with Committer(spec) as committer:
            submit(committer, 0)
            submit(committer, 1)

    with a_process_that(outlives):
        next_run = threading.Thread(target=run, args=(folder,))
        next_run.start()
        time.sleep(0.3)
        assert next_run.is_alive()
        assert (folder / "shards/000000.safetensors.tmp").exists(), "it was removed under the writer's feet"
        os.write(go_on, b"!")
        next_run.join()
    written = (folder / "shards/000000.safetensors").stat().st_mtime_ns
    assert written < (folder / "shards/000002.safetensors").stat().st_mtime_ns
    assert contents(folder) == straight
    os.close(may_go_on)
    os.close(go_on)


def test_a_writer_that_never_ends_is_named_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "WORKER_PATIENCE", 0.1)
    with (
        a_process_that(lambda: holds_the_writers_lock(tmp_path, seconds=1.0)) as child,
        pytest.raises(StoreBusyError, match=f"process {child} on .*: wait for it, or stop it"),
    ):
        Store.open_for_run(tmp_path, identity())
    with Store.open_for_run(tmp_path, identity()) as store:  # its own lock was let go
        store.write_unit(0, [captured(0)])
