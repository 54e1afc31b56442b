from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from pipeline.prepare import remembered
from pipeline.prepare import seen as seen_module
from pipeline.prepare.remembered import NOTE, Digests
from pipeline.prepare.seen import Seen


def digest(number: int) -> bytes:
    return hashlib.blake2b(str(number).encode(), digest_size=16).digest()


def test_table_knows_what_was_added_and_nothing_else_as_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen_module, "_FIRST", 256)
    seen = Seen(tmp_path)
    for number in range(20_000):
        assert digest(number) not in seen
        seen.add(digest(number))
        seen.add(digest(number // 2))
    assert all(digest(number) in seen for number in range(20_000))
    assert not any(digest(number) in seen for number in range(20_000, 40_000))
    seen.close()


def test_digests_that_want_the_same_slot_are_kept_apart(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    alike = [bytes(8) + number.to_bytes(8, "big") for number in range(1, 100)]
    for one in alike[::2]:
        seen.add(one)
    assert [one in seen for one in alike] == [place % 2 == 0 for place in range(99)]


def test_table_leaves_no_file_behind(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    seen.add(digest(1))
    assert not list(tmp_path.iterdir())


def test_digest_is_read_once_and_again_after_any_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    read = remembered.file_sha256
    monkeypatch.setattr(remembered, "file_sha256", lambda path: reads.append(path) or read(path))
    path = tmp_path / "a"

    def ask() -> str:
        digests = Digests(tmp_path)
        found = digests(path)
        digests.save()
        assert found == hashlib.sha256(path.read_bytes()).hexdigest()
        return found

    path.write_bytes(b"one")
    before = path.stat()
    assert ask() == ask() == ask()
    assert len(reads) == 1
    path.write_bytes(b"two")
    # Even where a program puts the old time back.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    ask()
    assert len(reads) == 2
    (tmp_path / "b").write_bytes(b"six")
    (tmp_path / "b").replace(path)
    ask()
    assert len(reads) == 3


@pytest.mark.parametrize("note", ["", "[]", "{", '{"/x": 3}'])
def test_note_that_cannot_be_read_is_as_good_as_none(note: str, tmp_path: Path) -> None:
    (tmp_path / NOTE).write_text(note)
    (tmp_path / "a").write_bytes(b"one")
    assert Digests(tmp_path)(tmp_path / "a") == hashlib.sha256(b"one").hexdigest()
