"""Applies a diff to a file in memory: every hunk at exactly its line with all its context, or not at all."""

from __future__ import annotations

from ops.patches.errors import DoesNotFitError
from ops.patches.hunks import Hunk, split_lines
from ops.patches.unified import FileDiff


def fit(patch: str, diff: FileDiff, old: bytes | None) -> bytes | None:
    """Apply one file's diff with no fuzz and no offset.

    Args:
        patch: the patch's name, for messages.
        diff: what to change.
        old: the file's content; None where there is no file.

    Returns:
        The new content; None where the file is deleted.

    Raises:
        DoesNotFitError: names patch, file, hunk and line.
    """
    if diff.creates != (old is None):
        fault = "is to be created, but is there already" if diff.creates else "is to be changed, but is not there"
        raise DoesNotFitError(f"{patch}: {diff.path} {fault}; refresh the patch")
    new = splice(patch, diff, split_lines(old or b""), [hunk.old_index for hunk in diff.hunks])
    if not diff.deletes:
        return new
    if new:
        raise DoesNotFitError(f"{patch}: {diff.path} is to be deleted, but has more lines than the patch knows")
    return None


def splice(patch: str, diff: FileDiff, lines: list[bytes], places: list[int]) -> bytes:
    """Put each hunk of `diff` in at its place, a 0-based index into `lines`.

    Raises:
        DoesNotFitError: a hunk's old lines are not what is there.
    """
    result: list[bytes] = []
    end = 0
    for hunk, place in zip(diff.hunks, places, strict=True):
        _check(patch, diff.path, hunk, lines, place)
        result += [*lines[end:place], *hunk.new]
        end = place + len(hunk.old)
    result += lines[end:]
    if any(not line.endswith(b"\n") for line in result[:-1]):
        raise DoesNotFitError(f"{patch}: {diff.path}: a line without a line end would stand before the end of the file")
    return b"".join(result)


def reverse(diff: FileDiff) -> FileDiff:
    """The diff that undoes `diff`."""
    turned = {b"-": b"+", b"+": b"-", b" ": b" "}
    hunks = tuple(
        Hunk(hunk.number, hunk.new_index, hunk.old_index, tuple((turned[sign], text) for sign, text in hunk.lines))
        for hunk in diff.hunks
    )
    return FileDiff(diff.path, creates=diff.deletes, deletes=diff.creates, hunks=hunks)


def _check(patch: str, path: str, hunk: Hunk, lines: list[bytes], place: int) -> None:
    where = f"{patch}: {path}, hunk {hunk.number}"
    if place > len(lines):
        raise DoesNotFitError(f"{where}: line {place + 1} is past the end of the file, which has {len(lines)} lines")
    for offset, wanted in enumerate(hunk.old):
        at = place + offset
        found = lines[at] if at < len(lines) else None
        if found != wanted:
            raise DoesNotFitError(f"{where}, line {at + 1}: expected {_shown(wanted)}, found {_shown(found)}")


def _shown(line: bytes | None) -> str:
    if line is None:
        return "the end of the file"
    text = line.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 60 else text[:57] + "...")
