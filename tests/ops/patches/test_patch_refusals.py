"""What cannot be applied: each its own exit code and message, and not a byte changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.errors import UserError
from ops.patches.state import State
from ops.patches.status import status
from ops.patches.verify import verify

from .bird import Bird
from .conftest import Refuse

HEAD = b"Description: x\nAuthor: a\nForwarded: no\nLast-Update: 2026-11-30\nX-Eyas-Test: tests/t.py::t\n---\n"


def test_another_version(bird: Bird, refuse: Refuse) -> None:
    site, series = bird.install(version="1.3.0"), bird.series()
    refuse(series, site, 10, "1.3.0", "1.2.0")
    assert status(series, site).state is State.WRONG_VERSION
    assert "1.3.0 is installed" in str(status(series, site))


def test_a_package_that_is_not_there(bird: Bird, refuse: Refuse) -> None:
    site = bird.install()
    shutil.rmtree(site / "bird-1.2.0.dist-info")
    refuse(bird.series(), site, 17, "bird is not installed")


def test_a_package_that_is_there_twice(bird: Bird, refuse: Refuse) -> None:
    site = bird.install()
    bird.install(version="1.3.0")
    refuse(bird.series(), site, 17, "2 times")


def test_a_package_without_record(bird: Bird, refuse: Refuse) -> None:
    site = bird.install()
    (site / "bird-1.2.0.dist-info/RECORD").unlink()
    refuse(bird.series(), site, 17, "RECORD")


def test_one_changed_byte(bird: Bird, refuse: Refuse) -> None:
    site, series = bird.install(), bird.series()
    wing = bytearray(bird.upstream["bird/wing.py"])
    wing[-2] ^= 1
    (site / "bird/wing.py").write_bytes(wing)
    refuse(series, site, 11, "bird/wing.py")
    assert status(series, site).state is State.CHANGED
    with pytest.raises(UserError) as caught:
        verify(series, site)
    assert caught.value.exit_code == 11


def test_a_missing_file(bird: Bird, refuse: Refuse) -> None:
    site = bird.install()
    (site / "bird/wing.py").unlink()
    refuse(bird.series(), site, 11, "bird/wing.py", "sha256 absent")


def test_a_file_where_one_is_to_be_created(bird: Bird, refuse: Refuse) -> None:
    site = bird.install()
    (site / "bird/young").mkdir()
    (site / "bird/young/chick.py").write_bytes(b"somebody else's\n")
    refuse(bird.series(), site, 11, "bird/young/chick.py")


@pytest.mark.parametrize("path", ["bird/wing.py", "bird/egg.py", "bird/young/chick.py"])
def test_some_files_patched_already(bird: Bird, refuse: Refuse, path: str) -> None:
    site, series = bird.install(), bird.series()
    if path in bird.patched:
        (site / path).parent.mkdir(exist_ok=True)
        (site / path).write_bytes(bird.patched[path])
    else:
        (site / path).unlink()
    refuse(series, site, 13, path, "1 of 7")
    assert status(series, site).state is State.PARTLY


def test_a_hunk_whose_place_has_moved_by_31_lines(bird: Bird, refuse: Refuse) -> None:
    """`patch -F0` takes this one; the series was made for a file without the 31 lines on top."""
    drifted = {**bird.upstream, "bird/wing.py": b"new\n" * 31 + bird.upstream["bird/wing.py"]}
    after = {**bird.patched, "bird/wing.py": b"new\n" * 31 + bird.patched["bird/wing.py"]}
    patches = {name: bird.series().joinpath(name).read_bytes() for name, _, _ in bird.steps}
    series = bird.series_of(patches, drifted, after)
    refuse(series, bird.install(files=drifted), 12, "0001-better-feather.patch", "bird/wing.py", "hunk 1", "line 7")


@pytest.mark.parametrize("line", [7, 13])
def test_a_hunk_whose_outermost_context_has_changed(bird: Bird, refuse: Refuse, line: int) -> None:
    """`patch` takes this one by default, with fuzz."""
    old, new = b"feather %d\n" % line, b"feather %d.\n" % line
    changed = {**bird.upstream, "bird/wing.py": bird.upstream["bird/wing.py"].replace(old, new)}
    after = {**bird.patched, "bird/wing.py": bird.patched["bird/wing.py"].replace(old, new)}
    patches = {name: bird.series().joinpath(name).read_bytes() for name, _, _ in bird.steps}
    series = bird.series_of(patches, changed, after)
    refuse(series, bird.install(files=changed), 12, "better-feather", "bird/wing.py", "hunk 1", f"line {line}:")


def test_the_second_file_of_a_patch_does_not_fit(bird: Bird, refuse: Refuse) -> None:
    """`patch` would leave the first file patched."""
    series = bird.series()
    file = series / "0001-better-feather.patch"
    file.write_bytes(file.read_bytes().replace(b" feather 7\n", b" feather seven\n"))
    refuse(series, bird.install(), 12, "bird/wing.py", "'feather seven\\n'", "'feather 7\\n'")


def test_an_outcome_that_is_not_the_recorded_one(bird: Bird, refuse: Refuse) -> None:
    series = bird.series()
    file = series / "0002-a-half.patch"
    file.write_bytes(file.read_bytes().replace(b"+feather 40 and a half\n", b"+feather 40 and more\n"))
    refuse(series, bird.install(), 12, "0002-a-half.patch", "bird/wing.py", "files.sha256")


def _edit(name: str, old: bytes, new: bytes) -> Callable[[Path], object]:
    def change(series: Path) -> None:
        text = (series / name).read_bytes()
        assert old in text
        (series / name).write_bytes(text.replace(old, new, 1))

    return change


def _add(name: str, text: bytes) -> Callable[[Path], object]:
    return lambda series: (series / name).write_bytes(text)


FIRST, SECOND = "0001-better-feather.patch", "0002-a-half.patch"
BROKEN: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "an unlisted patch": (_add("0003-more.patch", b""), ["0003-more.patch", "not listed"]),
    "an unlisted reject": (_add("wing.py.rej", b""), ["wing.py.rej"]),
    "a listed patch that is not there": (_edit("series", b"# the list", b"0000-gone.patch"), ["0000-gone.patch"]),
    "no list": (lambda series: (series / "series").unlink(), ["series"]),
    "no patch listed": (_add("series", b"# none\n"), ["0001-better-feather.patch"]),
    "a patch listed twice": (_edit("series", b"0002-a-half.patch", b"0001-better-feather.patch"), ["line 3"]),
    "a name in the list that is a path": (_edit("series", b"# the list", b"../0000-up.patch"), ["line 1"]),
    "no separator": (_edit(FIRST, b"\n---\n", b"\n"), [FIRST, "'---'"]),
    "no description": (_edit(FIRST, b"Description: better-feather\n in a few words\n", b""), [FIRST, "Description"]),
    "no author": (_edit(FIRST, b"Author: A Falconer <falconer@example.org>\n", b""), [FIRST, "Origin or Author"]),
    "no forwarded": (_edit(FIRST, b"Forwarded: no\n", b""), [FIRST, "Forwarded or Applied-Upstream"]),
    "no date": (_edit(FIRST, b"2026-11-30", b"30.11.2026"), [FIRST, "YYYY-MM-DD"]),
    "a date of no calendar": (_edit(FIRST, b"2026-11-30", b"2026-11-31"), [FIRST, "2026-11-31"]),
    "no test": (_edit(FIRST, b"X-Eyas-Test: tests/series/test_bird.py::test_it\n", b""), [FIRST, "X-Eyas-Test"]),
    "a test that is no node id": (_edit(FIRST, b"test_bird.py::test_it", b"test_bird.py"), [FIRST, "node id"]),
    "a test out of the repository": (_edit(FIRST, b"tests/series", b"../tests"), [FIRST, "node id"]),
    "an unknown field": (_edit(FIRST, b"Forwarded:", b"Forwarde:"), [FIRST, "line 4"]),
    "a field given twice": (_edit(FIRST, b"Forwarded: no\n", b"Forwarded: no\n" * 2), [FIRST, "line 5", "twice"]),
    "an empty field": (_edit(FIRST, b"Forwarded: no\n", b"Forwarded:\n"), [FIRST, "line 4", "empty"]),
    "a header that is not UTF-8": (_edit(FIRST, b"A Falconer", b"\xff"), [FIRST, "UTF-8"]),
    "a hunk cut short": (_edit(SECOND, b"+feather 40 and a half\n", b""), [SECOND, "line "]),
    "a hunk with a line too many": (_edit(SECOND, b"+feather 40 and a half\n", b"+a\n+b\n"), [SECOND, "line "]),
    "a file cut off": (lambda series: _cut(series / SECOND), [SECOND]),
    "a hunk line of no kind": (_edit(FIRST, b" feather 7\n", b"feather 7\n"), [FIRST, "line "]),
    "no diff": (_add(FIRST, HEAD), [FIRST, "no diff"]),
    "a rename": (_edit(FIRST, b"+++ b/bird/wing.py", b"+++ b/bird/wings.py"), [FIRST, "rename"]),
    "prose after the diff": (lambda series: _append(series / FIRST, b"that's all\n"), [FIRST, "expected '--- a/"]),
    "a file changed twice": (lambda series: _twice(series / FIRST), [FIRST, "twice"]),
    "an executable": (_edit(SECOND, b"new file mode 100644", b"new file mode 100755"), [SECOND, "100644"]),
    "no hashes": (lambda series: (series / "files.sha256").unlink(), ["files.sha256"]),
    "a hash cut short": (_edit("files.sha256", b"upstream ", b"upstream 0"), ["files.sha256 line 1"]),
    "hashes that lack a file": (lambda series: _drop_first_line(series / "files.sha256"), ["bird/beak.py", "twice"]),
    "hashes of a file no patch changes": (
        lambda series: _append(series / "files.sha256", b"upstream absent bird/x.py\npatched absent bird/x.py\n"),
        ["bird/x.py", "no patch"],
    ),
}


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def _append(file: Path, text: bytes) -> None:
    file.write_bytes(file.read_bytes() + text)


def _twice(file: Path) -> None:
    text = file.read_bytes()
    _append(file, text[text.index(b"diff --git") :])


def _drop_first_line(file: Path) -> None:
    file.write_bytes(file.read_bytes().split(b"\n", 1)[1])


@pytest.mark.parametrize("fault", BROKEN)
def test_a_series_that_is_not_as_it_should_be(bird: Bird, refuse: Refuse, fault: str) -> None:
    site, series = bird.install(), bird.series()
    change, words = BROKEN[fault]
    change(series)
    refuse(series, site, 15, *words)


def test_a_series_that_lists_nothing(bird: Bird, refuse: Refuse) -> None:
    site, series = bird.install(), bird.series_of({}, {}, {})
    refuse(series, site, 15, "lists no patch")


def test_a_series_that_leaves_a_file_as_it_was(bird: Bird, refuse: Refuse) -> None:
    steps = [*bird.steps, ("0003-back.patch", bird.patched, {**bird.patched, "bird/nest.py": b"VALUE = 1\n"})]
    series = bird.series(steps)
    line = "{} " + "5a3d" * 16 + " bird/nest.py\n"
    with (series / "files.sha256").open("a") as file:
        file.write(line.format("upstream") + line.format("patched"))
    refuse(series, bird.install(), 15, "bird/nest.py", "as it was")


def test_a_folder_of_no_name_and_version(bird: Bird, refuse: Refuse) -> None:
    refuse(bird.series(folder="patches/bird"), bird.install(), 15, "<package>-<version>")


def test_a_series_folder_that_is_not_there(bird: Bird, refuse: Refuse) -> None:
    refuse(bird.root / "patches/bird-1.2.0", bird.install(), 15, "series")


@pytest.mark.parametrize(
    "path",
    [b"../escape.py", b"bird/../../escape.py", b"/etc/escape.py", b"other/__init__.py", b"bird-1.2.0.dist-info/X"],
)
def test_a_path_out_of_the_package(bird: Bird, refuse: Refuse, path: bytes) -> None:
    site = bird.install()
    patch = HEAD + b"--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n+x\n" % path
    series = bird.series_of({"0001-x.patch": patch}, {}, {path.decode(): b"x\n"})
    refuse(series, site, 16, "0001-x.patch", path.decode())


def test_an_absolute_path_without_prefix(bird: Bird, refuse: Refuse) -> None:
    patch = HEAD + b"--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-x\n+y\n"
    refuse(bird.series_of({"0001-x.patch": patch}, {}, {"x": b""}), bird.install(), 16, "/etc/passwd")


@pytest.mark.parametrize("name", ["bird/wing.py", "bird/young", "bird", "bird-1.2.0.dist-info"])
def test_a_symbolic_link_that_leads_out(bird: Bird, refuse: Refuse, name: str) -> None:
    site = bird.install()
    outside = bird.root / "outside"
    if (site / name).exists():
        (site / name).rename(outside)
    else:
        outside.mkdir()
    (site / name).symlink_to(outside)
    refuse(bird.series(), site, 16, "symbolic link", str(outside))
