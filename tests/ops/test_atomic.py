"""Folders that are whole or not there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from ops.atomic import TEMPORARY_PREFIX, make_once, write_text
from ops.errors import DiskSpaceError


def never() -> None:
    raise AssertionError("nobody else builds here")


def whole(folder: Path) -> bool:
    return (folder / "content").is_file()


def fill(folder: Path) -> None:
    (folder / "content").write_text("whole", encoding="utf-8")


@contextmanager
def a_builder_at_work(final: Path) -> Iterator[Event]:
    """Another builder of `final`, in the middle of its work until the event is set."""
    at_work, go_on = Event(), Event()

    def build(folder: Path) -> None:
        at_work.set()
        assert go_on.wait(60)
        fill(folder)

    with ThreadPoolExecutor() as threads:
        first = threads.submit(make_once, final, build, whole=whole, waiting=never)
        assert at_work.wait(60)
        yield go_on
        first.result(60)


def test_a_second_builder_says_that_it_waits_and_builds_nothing(tmp_path: Path) -> None:
    def build(_: Path) -> None:
        raise AssertionError("built twice")

    with a_builder_at_work(tmp_path / "final") as go_on:
        # The first goes on only once the second has said that it waits.
        assert make_once(tmp_path / "final", build, whole=whole, waiting=go_on.set) == tmp_path / "final"
    assert whole(tmp_path / "final")


def test_an_unfinished_folder_never_has_the_final_name(tmp_path: Path) -> None:
    with a_builder_at_work(tmp_path / "final") as go_on:
        assert not (tmp_path / "final").exists()
        go_on.set()


def test_what_a_killed_builder_left_is_gone_before_the_next_one_needs_the_space(tmp_path: Path) -> None:
    leftover = tmp_path / f"{TEMPORARY_PREFIX}of-a-killed-one"
    (leftover / "deep").mkdir(parents=True)

    def build(folder: Path) -> None:
        assert not leftover.exists()
        fill(folder)

    make_once(tmp_path / "final", build, whole=whole, waiting=never)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_builder_that_fails_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def build(folder: Path) -> None:
        fill(folder)
        raise error

    with pytest.raises(error):
        make_once(tmp_path / "final", build, whole=whole, waiting=never)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_full_disk_is_a_user_error(tmp_path: Path) -> None:
    def build(_: Path) -> None:
        raise OSError(28, "No space left on device", "/cache/file")

    with pytest.raises(DiskSpaceError, match="/cache/file"):
        make_once(tmp_path / "final", build, whole=whole, waiting=never)


def test_a_folder_that_is_not_whole_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "final" / "old").mkdir(parents=True)
    make_once(tmp_path / "final", fill, whole=whole, waiting=never)
    assert [path.name for path in (tmp_path / "final").iterdir()] == ["content"]


def test_a_replaced_file_keeps_its_mode_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o640)
    write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]
