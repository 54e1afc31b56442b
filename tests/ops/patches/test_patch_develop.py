"""Making patches and keeping them: new, refresh, without, materialise."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from ops.errors import DoctorError, InstallError, TruncatedError, UserError
from ops.patches.apply import apply
from ops.patches.errors import (
    DoesNotFitError,
    EscapesPackageError,
    MalformedSeriesError,
    PackageNotFoundError,
    UpstreamChangedError,
    WrongVersionError,
)
from ops.patches.new import new
from ops.patches.refresh import refresh
from ops.patches.series import load, series_digest
from ops.patches.trees import upstream_from_wheel
from ops.patches.verify import verify
from ops.patches.without import materialise, without

from .bird import Bird, sha, write_tree

TEST = "tests/series/test_bird.py::test_it"


def make(series: Path, upstream: Path, edited: Path, name: str = "a-fix") -> Path:
    return new(
        series, upstream, edited, name=name, description="What\n\nand why", test=TEST, author="A <a@example.org>"
    )


def texts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def lines_changed(bird: Bird, *changes: tuple[bytes, bytes]) -> dict[str, bytes]:
    text = bird.upstream["bird/wing.py"]
    for old, new_line in changes:
        text = text.replace(b"feather %s\n" % old, new_line)
    return {**bird.upstream, "bird/wing.py": text}


def wheel(bird: Bird, site: Path) -> Path:
    file = bird.root / "bird-1.2.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path in sorted(site.rglob("*")):
            if path.is_file() and path.relative_to(site).parts[0] != "other":
                archive.write(path, path.relative_to(site))
    return file


def test_patches_made_from_edited_copies_apply_to_those_copies(bird: Bird) -> None:
    upstream, series = bird.install("upstream"), bird.root / "patches/bird-1.2.0"
    for number, (_, _, after) in enumerate(bird.steps):
        edited = write_tree(bird.root / f"edited-{number}", after)
        assert make(series, upstream, edited).name == f"000{number + 1}-a-fix.patch"
    site = bird.install()
    apply(series, site)
    assert bird.files(site) == bird.patched
    header = load(series).patches[0].header
    assert (header.summary, header.test) == ("What", TEST)
    assert header.fields["Description"] == "What\n\nand why"


def test_a_patch_can_be_made_against_a_wheel_or_the_patched_installation(bird: Bird) -> None:
    site = bird.install()
    edited = write_tree(bird.root / "edited", {**bird.patched, "bird/nest.py": b"VALUE = 3\n"})
    made = []
    upstreams = {"folder": site, "wheel": wheel(bird, site), "patched": bird.install("patched")}
    apply(bird.series(), upstreams["patched"])
    for name, upstream in upstreams.items():
        series = bird.series(folder=f"{name}/bird-1.2.0")
        make(series, upstream, edited)
        made.append(texts(series))
    assert made[0] == made[1] == made[2]
    assert b"-VALUE = 2\n+VALUE = 3\n" in made[0]["0003-a-fix.patch"]


def test_the_hashes_are_those_of_the_files(bird: Bird) -> None:
    series = bird.series()
    make(series, bird.install(), write_tree(bird.root / "edited", {**bird.patched, "bird/untouched.py": b"touched\n"}))
    lines = (series / "files.sha256").read_text().splitlines()
    for path in ("bird/untouched.py", "bird/egg.py", "bird/young/__init__.py"):
        after = {**bird.patched, "bird/untouched.py": b"touched\n"}
        assert f"upstream {sha(bird.upstream.get(path))} {path}" in lines
        assert f"patched  {sha(after.get(path))} {path}" in lines


def test_new_refuses_what_makes_no_patch_and_writes_nothing(bird: Bird) -> None:
    site, series = bird.install(), bird.series()
    before = texts(series)
    same = write_tree(bird.root / "same", bird.patched)
    binary = write_tree(bird.root / "binary", {**bird.patched, "bird/nest.py": b"\0"})
    back = write_tree(bird.root / "back", {**bird.patched, "bird/nest.py": bird.upstream["bird/nest.py"]})
    (bird.root / "empty").mkdir()
    cases: list[tuple[type[UserError], Path, str]] = [
        (DoesNotFitError, same, "a-fix"),
        (MalformedSeriesError, binary, "a-fix"),
        (MalformedSeriesError, back, "a-fix"),
        (PackageNotFoundError, bird.root / "empty", "a-fix"),
        (MalformedSeriesError, binary, "A Fix"),
    ]
    for error, edited, name in cases:
        with pytest.raises(error):
            make(series, site, edited, name)
    with pytest.raises(WrongVersionError):
        make(series, bird.install("later", version="1.3.0"), same)
    (site / "bird/wing.py").write_bytes(b"changed\n")
    with pytest.raises(UpstreamChangedError):
        make(series, site, binary)
    assert texts(series) == before


def test_without_git_the_developer_is_told_so(bird: Bird, monkeypatch: pytest.MonkeyPatch) -> None:
    series, site = bird.series(), bird.install()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DoctorError, match="git is not installed"):
        refresh(series, site)


def test_the_developers_own_git_configuration_changes_no_patch(bird: Bird, monkeypatch: pytest.MonkeyPatch) -> None:
    two_hunks = lines_changed(bird, (b"10", b"ten\n"), (b"30", b"thirty\n"))
    series, site = bird.series([("0001-two.patch", bird.upstream, two_hunks)]), bird.install()
    refresh(series, site)
    before = texts(series)
    (bird.root / ".gitconfig").write_text(
        "[diff]\n external = /bin/false\n interHunkContext = 99\n[color]\n ui = always\n"
    )
    monkeypatch.setenv("HOME", str(bird.root))
    assert refresh(series, site) == []
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "diff.interHunkContext")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "99")
    assert refresh(series, site) == []
    assert texts(series) == before


def test_refresh_changes_nothing_the_second_time_and_nothing_that_is_applied(bird: Bird) -> None:
    series, site = bird.series(), bird.install()
    refresh(series, site)
    before = texts(series)
    assert refresh(series, site) == []
    assert texts(series) == before
    apply(series, site)
    assert bird.files(site) == bird.patched


def test_refresh_renumbers_the_hunks_after_an_edited_patch(bird: Bird) -> None:
    series, site = bird.series(), bird.install()
    refresh(series, site)
    first = series / "0001-better-feather.patch"
    text = first.read_bytes().replace(b"@@ -7,7 +7,7 @@", b"@@ -7,7 +7,9 @@")
    first.write_bytes(text.replace(b"+a better feather 10\n", b"+a better\n+and longer\n+feather ten\n"))
    with pytest.raises(DoesNotFitError):
        apply(series, site)
    assert refresh(series, site) == ["0002-a-half.patch"]
    apply(series, site)
    expected = bird.patched["bird/wing.py"].replace(b"a better feather 10\n", b"a better\nand longer\nfeather ten\n")
    assert (site / "bird/wing.py").read_bytes() == expected
    verify(series, site)


def test_refresh_merges_a_patch_that_was_made_for_upstreams_file(bird: Bird) -> None:
    one, other = (b"10", b"ten\n"), (b"12", b"twelve\n")  # each in the other's context
    first, second = lines_changed(bird, one), lines_changed(bird, other)
    series = bird.series([("0001-ten.patch", bird.upstream, first), ("0002-12.patch", bird.upstream, second)])
    with pytest.raises(DoesNotFitError):
        apply(series, bird.install())
    assert "0002-12.patch" in refresh(series, bird.install())
    site = bird.install("fresh")
    apply(series, site)
    assert bird.files(site) == lines_changed(bird, one, other)


def test_refresh_does_not_guess(bird: Bird) -> None:
    """The hunk's lines stand in two places, neither of them its own."""
    twice = {**bird.upstream, "bird/nest.py": b"x\n" * 3 + b"a\nb\nc\n" + b"x\n" * 3 + b"a\nb\nc\n"}
    series = bird.series([("0001-b.patch", {"bird/nest.py": b"a\nb\nc\n"}, {"bird/nest.py": b"a\nB\nc\n"})])
    (series / "files.sha256").unlink()
    before = texts(series)
    with pytest.raises(DoesNotFitError, match="in several places"):
        refresh(series, bird.install(files=twice))
    with pytest.raises(DoesNotFitError, match="nowhere"):
        refresh(series, bird.install("other"))
    assert texts(series) == before


def test_refresh_does_not_pin_another_upstream(bird: Bird) -> None:
    series, site = bird.series(), bird.install()
    (site / "bird/wing.py").write_bytes(b"top\n" + bird.upstream["bird/wing.py"])
    before = texts(series)
    with pytest.raises(UpstreamChangedError, match=r"bird/wing\.py"):
        refresh(series, site)
    assert texts(series) == before


def test_materialise_gives_the_patched_package_from_any_upstream(bird: Bird) -> None:
    series, site = bird.series(), bird.install()
    patched = bird.install("patched")
    apply(series, patched)
    for number, upstream in enumerate([site, wheel(bird, site), patched]):
        copy = materialise(series, upstream, bird.root / f"copy-{number}")
        assert bird.files(copy) == bird.patched
        verify(series, copy)
        assert not (copy / "other").exists()
    assert bird.files(site) == bird.upstream


@pytest.mark.parametrize("source", ["unpatched", "patched"])
def test_a_patch_can_be_left_out(bird: Bird, source: str) -> None:
    series, site = bird.series(), bird.install()
    if source == "patched":
        apply(series, site)
    first = bird.files(without(series, site, bird.root / "without-1", "0001-better-feather.patch"))
    second = bird.files(without(series, site, bird.root / "without-2", "0002-a-half.patch"))
    half = bird.patched["bird/wing.py"].replace(b"a better feather 10\n", b"feather 10\n")
    assert second == bird.steps[0][2]
    assert first == {
        **bird.upstream,
        **{p: bird.patched[p] for p in first.keys() - bird.upstream},
        "bird/wing.py": half,
        "bird/tail.py": bird.patched["bird/tail.py"],
    }
    record = next((bird.root / "without-1").glob("*.dist-info/RECORD")).read_text().splitlines()
    assert bird.record_row("bird/wing.py", half) in record


def test_a_package_that_a_left_out_patch_creates_is_gone_folder_and_all(bird: Bird) -> None:
    """An empty folder would be importable, as a namespace package."""
    series, site = bird.series(), bird.install()
    apply(series, site)
    copy = without(series, site, bird.root / "copy", "0002-a-half.patch")
    assert not (copy / "bird/young").exists()
    assert (copy / "bird").is_dir()


def test_a_patch_that_others_build_on_cannot_be_left_out(bird: Bird) -> None:
    one = lines_changed(bird, (b"10", b"ten\n"), (b"30", b"thirty\n"))
    two = lines_changed(bird, (b"10", b"TEN\nand more\n"), (b"30", b"THIRTY\n"))
    series = bird.series([("0001-one.patch", bird.upstream, one), ("0002-two.patch", one, two)])
    with pytest.raises(DoesNotFitError, match=r"0001-one.*bird/wing\.py, lines 10-11, 31-31 of the patched file"):
        without(series, bird.install(), bird.root / "without", "0001-one.patch")
    assert not (bird.root / "without").exists()


def test_patches_on_top_of_each_other_are_undone_in_their_order(bird: Bird) -> None:
    one = lines_changed(bird, (b"10", b"ten\nand more\n"))
    two = lines_changed(bird, (b"10", b"ten\nand less\n"), (b"50", b"fifty\n"))
    series = bird.series([("0001-one.patch", bird.upstream, one), ("0002-two.patch", one, two)])
    site = bird.install()
    apply(series, site)
    assert bird.files(without(series, site, bird.root / "copy", "0002-two.patch")) == one


def test_a_created_file_that_others_change_cannot_be_left_out(bird: Bird) -> None:
    later = {**bird.patched, "bird/young/chick.py": b"grown\n"}
    series = bird.series([*bird.steps, ("0003-grown.patch", bird.patched, later)])
    with pytest.raises(DoesNotFitError, match=r"0002-a-half.*bird/young/chick\.py"):
        without(series, bird.install(), bird.root / "without", "0002-a-half.patch")


def test_copies_are_not_written_over_anything(bird: Bird) -> None:
    series, site = bird.series(), bird.install()
    (bird.root / "full").mkdir()
    (bird.root / "full/file").write_bytes(b"")
    with pytest.raises(InstallError, match="there already"):
        materialise(series, site, bird.root / "full")
    with pytest.raises(MalformedSeriesError, match=r"has no patch '0009-x.patch'; it has 0001"):
        without(series, site, bird.root / "copy", "0009-x.patch")
    assert [path.name for path in (bird.root / "full").iterdir()] == ["file"]


def test_the_digest_follows_every_byte_of_a_patch(bird: Bird) -> None:
    series = bird.series()
    before = series_digest(series)
    assert before == [(name, sha((series / name).read_bytes())) for name, _, _ in bird.steps]
    file = series / "0001-better-feather.patch"
    file.write_bytes(file.read_bytes().replace(b"a few words", b"few words"))
    assert [old == now for old, now in zip(before, series_digest(series), strict=True)] == [False, True]


def test_a_wheel_is_unpacked_whole_or_refused(bird: Bird) -> None:
    site = bird.install()
    file = wheel(bird, site)
    shutil.rmtree(site / "other")
    unpacked = upstream_from_wheel(file, bird.root / "unpacked")
    assert bird.files(unpacked) == bird.upstream
    assert bird.record(unpacked) == bird.record(site)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(TruncatedError):
        upstream_from_wheel(file, bird.root / "again")
    with pytest.raises(TruncatedError):
        upstream_from_wheel(bird.root / "none.whl", bird.root / "again")
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("../escaped.py", b"")
    with pytest.raises(EscapesPackageError):
        upstream_from_wheel(file, bird.root / "again")
    assert not (bird.root / "again").exists()
