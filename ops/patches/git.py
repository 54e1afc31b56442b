"""The two things the developer's commands ask of git: a diff, and a three-way merge of one file."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ops.errors import DoctorError
from ops.patches.errors import MalformedSeriesError
from ops.patches.hunks import split_lines

_MARKER_SIZE = 60  # longer than any line of markers in real source
_MERGE_FAILED = 128  # git merge-file exits with the number of conflicts, at most 127


@dataclass(frozen=True)
class Merge:
    """The outcome of a merge: the content, or the conflicts as (first, last) line of our side, counted from 1."""

    content: bytes | None
    conflicts: tuple[tuple[int, int], ...] = ()


def file_diff(path: str, old: bytes | None, new: bytes | None) -> bytes:
    """The diff of one file in the form `unified.parse` reads; empty where nothing differs.

    Raises:
        MalformedSeriesError: the file is binary.
        ops.errors.DoctorError: git is not installed.
    """
    if old == new:
        return b""
    if b"\0" in (old or b"") + (new or b""):
        raise MalformedSeriesError(f"{path} is a binary file; patches are for text")
    head = f"diff --git a/{path} b/{path}\n"
    head += "new file mode 100644\n" if old is None else "deleted file mode 100644\n" if new is None else ""
    if not old and not new:  # an empty file comes or goes
        return head.encode()
    head += f"--- {'/dev/null' if old is None else 'a/' + path}\n+++ {'/dev/null' if new is None else 'b/' + path}\n"
    # --text: what is text was decided above, not by attributes; histogram keeps functions whole where they moved
    flags = (
        "--no-index",
        "--text",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        "--diff-algorithm=histogram",
        "-U3",
    )
    output = _git(["diff", *flags, "--", "old", "new"], {"old": old or b"", "new": new or b""}).stdout
    return head.encode() + output[output.index(b"\n@@ ") + 1 :]


def merge(base: bytes | None, ours: bytes | None, theirs: bytes | None) -> Merge:
    """Bring the change from `base` to `theirs` into `ours`; None where there is no file.

    Raises:
        ops.errors.DoctorError: git is not installed.
    """
    if theirs in (base, ours):
        return Merge(ours)
    if base == ours:
        return Merge(theirs)
    if base is None or ours is None or theirs is None:
        return Merge(None, ((1, max(1, len(split_lines(ours or b"")))),))
    flags = ("-p", f"--marker-size={_MARKER_SIZE}")
    result = _git(["merge-file", *flags, "ours", "base", "theirs"], {"base": base, "ours": ours, "theirs": theirs})
    if result.returncode >= _MERGE_FAILED:
        return Merge(None, ((1, max(1, len(split_lines(ours)))),))
    if result.returncode:
        return Merge(None, _conflicts(result.stdout))
    return Merge(result.stdout)


def _git(arguments: list[str], files: dict[str, bytes]) -> subprocess.CompletedProcess[bytes]:
    """Run git on files in an empty folder, untouched by any configuration or repository around."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "LC_ALL": "C"}
    with tempfile.TemporaryDirectory(prefix="eyas-") as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        env["GIT_CEILING_DIRECTORIES"] = str(Path(folder).parent)
        try:
            return subprocess.run(["git", *arguments], cwd=folder, env=env, capture_output=True, check=False)
        except FileNotFoundError:
            raise DoctorError("git is not installed; patch.new, refresh, rebase and without need it") from None


def _conflicts(merged: bytes) -> tuple[tuple[int, int], ...]:
    """Where the conflict markers of `git merge-file` stand, in the numbering of our side."""
    spans = []
    line, start, in_theirs = 0, 0, False
    for text in split_lines(merged):
        if re.match(rb"<{%d} " % _MARKER_SIZE, text):
            start = line + 1
        elif re.match(rb"={%d}\r?\n" % _MARKER_SIZE, text):
            in_theirs = True
            spans.append((start, max(start, line)))
        elif re.match(rb">{%d} " % _MARKER_SIZE, text):
            in_theirs = False
        else:
            line += not in_theirs
    return tuple(spans)
