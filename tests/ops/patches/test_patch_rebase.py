"""Carrying a series over to another upstream version."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.errors import InstallError
from ops.patches.apply import apply
from ops.patches.errors import DoesNotFitError, UpstreamChangedError, WrongVersionError
from ops.patches.rebase import Outcome, rebase
from ops.patches.refresh import refresh

from .bird import Bird, Files

FIRST, SECOND = "0001-better-feather.patch", "0002-a-half.patch"


def rebased(bird: Bird, files: Files) -> tuple[Path, list[Outcome], Path]:
    """The new folder, the outcomes, and the new upstream."""
    newer = bird.install("newer", files, version="1.3.0")
    report = rebase(bird.series(), bird.install("older"), newer, "1.3.0")
    assert [name for name, _ in report.outcomes] == [FIRST, SECOND]
    return report.folder, [outcome for _, outcome in report.outcomes], newer


def test_an_upstream_that_left_these_places_alone(bird: Bird) -> None:
    files = {**bird.upstream, "bird/untouched.py": b"touched by upstream\n", "bird/more.py": b""}
    folder, outcomes, newer = rebased(bird, files)
    assert outcomes == [Outcome.CLEAN, Outcome.CLEAN]
    assert folder.name == "bird-1.3.0"
    apply(folder, newer)
    assert bird.files(newer) == {**bird.patched, "bird/untouched.py": b"touched by upstream\n", "bird/more.py": b""}


def test_an_upstream_whose_lines_have_moved(bird: Bird) -> None:
    files = {**bird.upstream, "bird/wing.py": b"on top\n" * 5 + bird.upstream["bird/wing.py"]}
    folder, outcomes, newer = rebased(bird, files)
    assert outcomes == [Outcome.MERGED, Outcome.MERGED]
    assert b"@@ -12,7 +12,7 @@" in (folder / FIRST).read_bytes()
    apply(folder, newer)
    assert bird.files(newer) == {**bird.patched, "bird/wing.py": b"on top\n" * 5 + bird.patched["bird/wing.py"]}
    assert refresh(folder, bird.install("again", files, version="1.3.0")) == []


def test_headers_come_over_byte_for_byte(bird: Bird) -> None:
    folder, _, _ = rebased(bird, {**bird.upstream, "bird/wing.py": b"\n" + bird.upstream["bird/wing.py"]})
    for name in (FIRST, SECOND):
        old = (folder.parent / "bird-1.2.0" / name).read_bytes()
        assert old.split(b"---\n")[0] == (folder / name).read_bytes().split(b"---\n")[0]


def test_an_upstream_that_has_a_patch_already(bird: Bird) -> None:
    """The first patch, and something else of its own."""
    files = {**bird.steps[0][2], "bird/wing.py": b"on top\n" + bird.steps[0][2]["bird/wing.py"]}
    newer = bird.install("newer", files, version="1.3.0")
    report = rebase(bird.series(), bird.install("older"), newer, "1.3.0")
    assert report.outcomes == ((FIRST, Outcome.UPSTREAM), (SECOND, Outcome.MERGED))
    assert f"{FIRST}: upstream has it already: dropped (Applied-Upstream: 1.3.0)" in str(report)
    assert sorted(path.name for path in report.folder.iterdir()) == [SECOND, "files.sha256", "series"]
    assert (report.folder / "series").read_text() == f"# {FIRST}: Applied-Upstream: 1.3.0\n{SECOND}\n"
    apply(report.folder, newer)
    assert bird.files(newer) == {**bird.patched, "bird/wing.py": b"on top\n" + bird.patched["bird/wing.py"]}


def test_an_upstream_that_has_a_part_of_a_patch(bird: Bird) -> None:
    files = {**bird.upstream, "bird/nest.py": b"VALUE = 2\n"}
    folder, outcomes, newer = rebased(bird, files)
    assert outcomes == [Outcome.MERGED, Outcome.CLEAN]
    assert b"bird/nest.py" not in (folder / FIRST).read_bytes()
    apply(folder, newer)
    assert bird.files(newer) == bird.patched


def test_an_upstream_that_has_everything(bird: Bird) -> None:
    folder, outcomes, _ = rebased(bird, bird.patched)
    assert outcomes == [Outcome.UPSTREAM, Outcome.UPSTREAM]
    assert not folder.exists()


@pytest.mark.parametrize(
    ("path", "content", "lines"),
    [
        ("bird/wing.py", b"".join(b"quill %d\n" % number for number in range(1, 61)), "lines "),
        ("bird/nest.py", b"on top\nVALUE = 9\n", "lines 1-2"),
        ("bird/egg.py", b"upstream needs it still\n", "lines 1-1"),
        ("bird/tail.py", None, "lines 1-1"),
        ("bird/young/chick.py", b"upstream's own\n", "lines 1-1"),
    ],
)
def test_a_conflict_names_patch_file_and_lines_and_writes_nothing(
    bird: Bird, path: str, content: bytes | None, lines: str
) -> None:
    files = {name: text for name, text in {**bird.upstream, path: content}.items() if text is not None}
    series, older = bird.series(), bird.install("older")
    newer = bird.install("newer", files, version="1.3.0")
    before = bird.snapshot(bird.root)
    with pytest.raises(DoesNotFitError) as caught:
        rebase(series, older, newer, "1.3.0")
    for word in (".patch conflicts with 1.3.0", path, lines):
        assert word in str(caught.value)
    assert bird.snapshot(bird.root) == before


def test_wrong_folders_are_refused(bird: Bird) -> None:
    series, older = bird.series(), bird.install("older")
    newer = bird.install("newer", version="1.3.0")
    with pytest.raises(WrongVersionError):
        rebase(series, newer, newer, "1.3.0")
    with pytest.raises(WrongVersionError):
        rebase(series, older, newer, "1.4.0")
    with pytest.raises(InstallError, match="there already"):
        rebase(series, older, newer, "1.2.0")
    (older / "bird/wing.py").write_bytes(b"")
    with pytest.raises(UpstreamChangedError):
        rebase(series, older, newer, "1.3.0")
    assert [path.name for path in series.parent.iterdir()] == ["bird-1.2.0"]
