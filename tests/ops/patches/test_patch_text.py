"""Reading diffs and applying them in memory, against git and difflib as independent truths."""

from __future__ import annotations

import difflib
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.patches.errors import MalformedSeriesError
from ops.patches.fit import fit, reverse
from ops.patches.git import file_diff
from ops.patches.hunks import split_lines
from ops.patches.unified import parse

NO_NEWLINE = b"\n\\ No newline at end of file\n"
# Few different lines, so that edits repeat and hunks are ambiguous but for their place; some trip up other tools.
LINE = st.sampled_from(
    [
        b"",
        b"a",
        b"b",
        b"\r",
        b"x\r",
        b"a\rb",
        b"\x0c",
        b"a\x0bb",
        b"\x1c",
        "é".encode(),
        b"\xff",
        b"-- ",
        b"@@ -1 +1 @@",
        b"+",
        b" ",
    ]
)
TEXT = st.builds(lambda lines, end: b"\n".join(lines) + end, st.lists(LINE, max_size=30), st.sampled_from([b"", b"\n"]))


@st.composite
def edits(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A text and an edited one."""
    old = draw(TEXT)
    lines = split_lines(old)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(lines)))
        lines[at : at + draw(st.integers(0, 3))] = [line + b"\n" for line in draw(st.lists(LINE, max_size=3))]
    new = b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines)
    return old, new[:-1] if draw(st.booleans()) else new


def by_difflib(old: bytes, new: bytes, context: int) -> bytes:
    lines = difflib.diff_bytes(
        difflib.unified_diff, split_lines(old), split_lines(new), b"a/p/f.py", b"b/p/f.py", n=context, lineterm=b"\n"
    )
    return b"".join(line if line.endswith(b"\n") else line + NO_NEWLINE for line in lines)


@settings(max_examples=400, deadline=None)
@given(edits(), st.integers(0, 4))
def test_a_diff_of_difflib_gives_the_edited_text_and_undone_the_old_one(
    texts: tuple[bytes, bytes], context: int
) -> None:
    old, new = texts
    if old == new:
        return
    (diff,) = parse("0001-x.patch", by_difflib(old, new, context))
    assert fit("0001-x.patch", diff, old) == new
    assert fit("0001-x.patch", reverse(diff), new) == old


@settings(max_examples=60, deadline=None)
@given(edits())
def test_a_diff_written_here_is_read_alike_here_and_by_git(texts: tuple[bytes, bytes]) -> None:
    old, new = texts
    if old == new:
        assert file_diff("p/f.py", old, new) == b""
        return
    text = file_diff("p/f.py", old, new)
    (diff,) = parse("0001-x.patch", text)
    assert fit("0001-x.patch", diff, old) == new
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "p").mkdir()
        (Path(folder) / "p/f.py").write_bytes(old)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=folder, input=text, check=True)
        assert (Path(folder) / "p/f.py").read_bytes() == new


@pytest.mark.parametrize("content", [b"", b"x\n", b"x", b"a\r\nb"])
def test_creating_and_deleting_a_file_are_each_others_opposite(content: bytes) -> None:
    (creation,) = parse("0001-x.patch", file_diff("p/f.py", None, content))
    (deletion,) = parse("0001-x.patch", file_diff("p/f.py", content, None))
    assert fit("x", creation, None) == content
    assert fit("x", deletion, content) is None
    assert reverse(creation) == deletion


def test_only_a_line_feed_ends_a_line() -> None:
    assert split_lines(b"a\rb\r\n\x0c\n\nlast") == [b"a\rb\r\n", b"\x0c\n", b"\n", b"last"]


def test_an_empty_context_line_may_have_lost_its_blank() -> None:
    (diff,) = parse("x", b"--- a/p/f.py\n+++ b/p/f.py\n@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n")
    assert fit("x", diff, b"a\n\nb\n") == b"a\n\nc\n"


def test_a_time_after_the_name_is_no_part_of_it() -> None:
    (diff,) = parse("x", b"--- a/p/f.py\t2026-11-30 10:00\n+++ b/p/f.py\t2026-11-30 10:01\n@@ -1 +1 @@\n-a\n+b\n")
    assert diff.path == "p/f.py"


HEAD = b"--- a/p/f.py\n+++ b/p/f.py\n"
MALFORMED = {
    "nothing": (b"", 1),
    "no hunk": (HEAD, 3),
    "only one name": (b"--- a/p/f.py\n@@ -1 +1 @@\n-a\n+b\n", 2),
    "two names": (b"--- a/p/f.py\n+++ b/p/g.py\n@@ -1 +1 @@\n-a\n+b\n", 3),
    "no file on either side": (b"--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", 3),
    "no prefix": (b"--- p/f.py\n+++ p/f.py\n@@ -1 +1 @@\n-a\n+b\n", None),
    "a quoted name": (b'--- "a/p/\\303\\251.py"\n+++ "b/p/\\303\\251.py"\n@@ -1 +1 @@\n-a\n+b\n', None),
    "a name in a long form": (b"--- a/p//f.py\n+++ b/p//f.py\n@@ -1 +1 @@\n-a\n+b\n", None),
    "line 0 of a file with lines": (HEAD + b"@@ -0 +0 @@\n-a\n+b\n", 3),
    "too few lines": (HEAD + b"@@ -1,2 +1,2 @@\n-a\n+b\n", 6),
    "too many additions": (HEAD + b"@@ -1 +1 @@\n-a\n+b\n+c\n", 6),
    "too many deletions": (HEAD + b"@@ -1 +1 @@\n-a\n+b\n-c\n", 6),
    "overlapping hunks": (HEAD + b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n@@ -2 +2 @@\n-b\n+c\n", 10),
    "new lines that do not add up": (HEAD + b"@@ -1 +1,2 @@\n-a\n+b\n+c\n@@ -9 +9 @@\n-d\n+e\n", 10),
    "an end of file in the middle": (HEAD + b"@@ -1,2 +1,2 @@\n a" + NO_NEWLINE + b"-b\n+c\n", 8),
    "a creation with context": (b"--- /dev/null\n+++ b/p/f.py\n@@ -1 +1,2 @@\n a\n+b\n", 6),
    "a deletion that adds": (b"--- a/p/f.py\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", 6),
    "a deletion called a creation": (
        b"diff --git a/p/f.py b/p/f.py\nnew file mode 100644\n--- a/p/f.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
        5,
    ),
    "a mode": (b"diff --git a/p/f.py b/p/f.py\nold mode 100644\nnew mode 100755\n", 2),
    "a rename": (b"diff --git a/p/f.py b/p/g.py\nsimilarity index 100%\nrename from p/f.py\nrename to p/g.py\n", 1),
    "a binary": (b"diff --git a/p/f.py b/p/f.py\nindex 0..1\nBinary files a/p/f.py and b/p/f.py differ\n", 3),
    "no line end": (HEAD + b"@@ -1 +1 @@\n-a\n+b", 5),
}


@pytest.mark.parametrize("fault", MALFORMED)
def test_a_malformed_diff_is_refused_at_its_line(fault: str) -> None:
    text, line = MALFORMED[fault]
    with pytest.raises(MalformedSeriesError, match=r"^0001-x\.patch") as caught:
        parse("0001-x.patch", text)
    if line is not None:
        assert f"0001-x.patch line {line}:" in str(caught.value)
