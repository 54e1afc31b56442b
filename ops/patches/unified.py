"""Unified diffs, read strictly: bytes in, one `FileDiff` for each file out.

Everything that is not a plain edit, creation or deletion of a text file (renames, modes, binary files) is refused.
Git's lines before the names are those of git-diff(1), "Generating patch text with -p".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ops.patches.hunks import Hunk, Reader, read_hunks
from ops.patches.paths import checked_name

_NOWHERE = b"/dev/null"


@dataclass(frozen=True)
class FileDiff:
    """What one patch does to one file; `path` is relative to site-packages."""

    path: str
    creates: bool
    deletes: bool
    hunks: tuple[Hunk, ...]


def parse(patch: str, data: bytes, first_line: int = 1) -> tuple[FileDiff, ...]:
    """Read the diff part of a patch.

    Args:
        patch: the patch's name, for messages.
        data: the diff, from its first header line on.
        first_line: the number of its first line in the patch file, for messages.

    Raises:
        MalformedSeriesError: it is no unified diff, or asks for something that is not supported.
        EscapesPackageError: a path is absolute or has `..` in it.
    """
    reader = Reader(patch, data, first_line)
    diffs: list[FileDiff] = []
    while reader.peek():
        diff = _file(reader)
        if diff.path in {earlier.path for earlier in diffs}:
            raise reader.error(f"{diff.path} is changed twice in one patch; make it one change")
        diffs.append(diff)
    if not diffs:
        raise reader.error("no diff after the header; write one or drop the patch")
    return tuple(diffs)


def _file(reader: Reader) -> FileDiff:
    git_path, mode = _git_header(reader)
    if not reader.peek().startswith(b"--- "):
        if git_path is None or mode is None:
            raise reader.error("expected '--- a/...'; only edits, creations and deletions of text files are supported")
        return FileDiff(git_path, mode == b"new", mode == b"deleted", ())
    old = _side(reader, b"--- ", b"a/")
    new = _side(reader, b"+++ ", b"b/")
    names = {name for name in (old, new, git_path) if name is not None}
    if len(names) != 1 or (old is None and new is None):
        raise reader.error("the old and the new name differ; a rename is written as a deletion and a creation")
    if mode is not None and (mode == b"new") != (old is None):
        raise reader.error("the file mode line and the file names disagree")
    hunks = read_hunks(reader)
    _check_whole(reader, old, new, hunks)
    return FileDiff(names.pop(), old is None, new is None, hunks)


def _git_header(reader: Reader) -> tuple[str | None, bytes | None]:
    """Git's lines before `---`, if there are any: the path, and b"new" or b"deleted" when it says so."""
    if not reader.peek().startswith(b"diff --git "):
        return None, None
    names = reader.peek()[len(b"diff --git ") : -1]
    half = (len(names) - 1) // 2  # both names are the same but for a/ and b/, so spaces in them do not confuse
    old, new = names[:half], names[half + 1 :]
    if old[:2] != b"a/" or new[:2] != b"b/" or old[2:] != new[2:]:
        raise reader.error("expected 'diff --git a/PATH b/PATH' with the same path twice")
    path = checked_name(reader.patch, new, b"b/")
    reader.take()
    mode = None
    if match := re.fullmatch(rb"(new|deleted) file mode (\d+)\n", reader.peek()):
        if match[2] != b"100644":
            raise reader.error("only plain files of mode 100644 can be created or deleted")
        mode = match[1]
        reader.take()
    if reader.peek().startswith(b"index "):
        reader.take()
    return path, mode


def _side(reader: Reader, mark: bytes, prefix: bytes) -> str | None:
    if not reader.peek().startswith(mark):
        raise reader.error(f"expected '{mark.decode()}{prefix.decode()}...'")
    name = reader.peek()[len(mark) : -1].split(b"\t")[0]  # diff -u puts a tab and a time after the name
    path = None if name == _NOWHERE else checked_name(reader.patch, name, prefix)
    reader.take()
    return path


def _check_whole(reader: Reader, old: str | None, new: str | None, hunks: tuple[Hunk, ...]) -> None:
    """A creation has only additions and a deletion only deletions, in one hunk."""
    unwanted = (b" ", b"-") if old is None else (b" ", b"+") if new is None else ()
    if unwanted and (len(hunks) != 1 or any(sign in unwanted for sign, _ in hunks[0].lines)):
        raise reader.error("a created or deleted file must be one hunk that holds all of it")
    for side in [(hunk.old, hunk.new) for hunk in hunks]:
        if any(not line.endswith(b"\n") for lines in side for line in lines[:-1]):
            raise reader.error("'No newline at end of file' stands before the end of a file")
