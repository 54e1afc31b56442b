"""`stack.pin-nightly` against an index on loopback: what it records, and that a failure changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ops.errors import LockError, UserError
from ops.stack.check import check_lock
from ops.stack.lockfile import read_lock
from ops.stack.model import Stack, load
from ops.stack.pin import pin_nightly
from tests.ops.stack.loopback import COMMIT, VERSION, Index, serve, sha256, wheel

Refused = Callable[..., None]


@pytest.fixture
def index() -> Iterator[Index]:
    with serve(Index()) as served:
        yield served


@pytest.fixture
def folder(make_small_stack: Callable[[], Stack]) -> Path:
    return make_small_stack().folder


@pytest.fixture
def refused(folder: Path, index: Index, own_cache: Path) -> Refused:
    """Pinning must fail with this code and words, and leave every file as it was and no download behind."""

    def check(code: int, words: str, *, commit: str = COMMIT, url: str = "", sha256: str = "") -> None:
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(UserError, match=words) as caught:
            pin_nightly(folder, commit, index=url or index.url, sha256=sha256)
        assert caught.value.exit_code == code
        assert "\n" not in str(caught.value)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        assert not list(own_cache.glob("downloads/*"))

    return check


def test_it_records_version_url_and_checksum_and_keeps_comments(folder: Path, index: Index) -> None:
    content = wheel()
    index.add(content)
    pin_nightly(folder, COMMIT.upper(), index=index.url)
    pin = load(folder).accelerator("cuda").vllm
    assert pin
    assert pin.commit == COMMIT
    assert pin.version == VERSION
    assert pin.sha256 == sha256(content)
    assert pin.url == f"{index.url}/{COMMIT}/vllm-0.16.0rc2.dev388%2Bg7291d1b28-cp38-abi3-manylinux_2_31_x86_64.whl"
    text = (folder / "stack.toml").read_text(encoding="utf-8")
    assert text.startswith("# A comment that must survive.\n")
    assert "[cuda.vllm]  # pinned\n" in text


def test_the_lock_made_again_pins_that_wheel_by_its_hash(folder: Path, index: Index) -> None:
    content = wheel()
    index.add(content)
    pin_nightly(folder, COMMIT, index=index.url)
    stack = load(folder)
    check_lock(stack.accelerator("cuda"), stack.lock("cuda"))
    (entry,) = read_lock(stack.lock("cuda")).entries
    assert (entry.name, entry.version, entry.hashes) == ("vllm", VERSION, (sha256(content),))
    assert str(entry.requirement).split(" ;")[0].endswith(".whl")


def test_another_nightly_replaces_it(folder: Path, index: Index) -> None:
    other = "a" * 40
    index.add(wheel())
    index.add(wheel("0.16.1.dev1+gaaaaaaaaa"), commit=other, version="0.16.1.dev1+gaaaaaaaaa")
    pin_nightly(folder, COMMIT, index=index.url)
    pin_nightly(folder, other, index=index.url)
    (entry,) = read_lock(load(folder).lock("cuda")).entries
    assert entry.version == "0.16.1.dev1+gaaaaaaaaa"


def test_the_wheel_for_x86_64_is_chosen_among_several(folder: Path, index: Index) -> None:
    index.add(wheel(tags="cp38-abi3-manylinux_2_31_aarch64"), tags="cp38-abi3-manylinux_2_31_aarch64")
    index.add(wheel())
    assert "x86_64" in pin_nightly(folder, COMMIT, index=index.url).url


def test_a_checksum_known_from_elsewhere_is_accepted(folder: Path, index: Index) -> None:
    index.add(wheel())
    assert pin_nightly(folder, COMMIT, index=index.url, sha256=sha256(wheel()).upper())


def test_a_wheel_with_another_checksum_than_given_is_refused(index: Index, refused: Refused) -> None:
    index.add(wheel())
    refused(24, "--sha256 says 0000", sha256="0" * 64)


def test_a_wheel_with_another_checksum_than_the_index_says_is_refused(index: Index, refused: Refused) -> None:
    index.add(wheel(), fragment=f"#sha256={'1' * 64}")
    refused(24, "the index says 1111")


def test_a_commit_the_index_does_not_have_is_named(refused: Refused) -> None:
    refused(23, "commit 7291d1b288558d48508e1a17c37b0aa170332264 is not at the index: .* answers 404")


def test_a_listed_wheel_that_is_not_there_is_named(index: Index, refused: Refused) -> None:
    index.add(wheel())
    del index.files[next(path for path in index.files if path.endswith(".whl"))]
    refused(23, "the wheel is not at the index")


def test_a_commit_without_a_wheel_for_this_platform_is_refused(index: Index, refused: Refused) -> None:
    index.add(wheel(), tags="cp38-abi3-manylinux_2_31_aarch64")
    refused(23, "lists no vllm wheel for x86-64 Linux")


@pytest.mark.parametrize("cut", [1, 500])
def test_a_truncated_download_is_refused(index: Index, refused: Refused, cut: int) -> None:
    index.add(wheel())
    index.cut = cut
    refused(25, f"ended before all {len(wheel())} bytes had come")


def test_an_index_that_does_not_answer_is_named(refused: Refused) -> None:
    refused(23, "http://127.0.0.1:9/.* cannot be reached", url="http://127.0.0.1:9")


def test_a_wheel_of_another_commit_is_refused(index: Index, refused: Refused) -> None:
    index.add(wheel("0.16.0rc2.dev388+gdeadbeef0"))
    refused(24, "declares version .*gdeadbeef0, which is not of commit 7291d1b28")


def test_a_file_that_is_no_wheel_is_refused(index: Index, refused: Refused) -> None:
    index.add(b"<html>an error page with status 200</html>")
    refused(24, "is not a vllm wheel")


@pytest.mark.parametrize("commit", ["7291d1b28", "main", "z" * 40, COMMIT + "0"])
def test_a_commit_that_is_not_40_hex_digits_is_refused(refused: Refused, commit: str) -> None:
    refused(20, "give all 40 hex digits", commit=commit)


def test_a_nightly_that_fits_no_set_of_packages_changes_nothing(folder: Path, index: Index, refused: Refused) -> None:
    toml = folder / "stack.toml"
    text = toml.read_text(encoding="utf-8")
    toml.write_text(text.replace("requirements = []", 'requirements = ["vllm<0.10"]'), encoding="utf-8")
    index.add(wheel())
    refused(LockError.exit_code, "cannot be locked")
