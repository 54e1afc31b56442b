"""Digests of files that were read before, so that a run with nothing changed need not read them again.

A file counts as the one that was read when its size, inode and both of its times are the same, to the nanosecond: any
write gives it another change time (`ctime`), which no program can set. The clock that stamps files has ticks, and a
second write within one would not show: so a file that was changed only just now is read a little later. The digests of
contents are what a result stands on; this is only a note beside it, and deleting it costs time and nothing else.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from pipeline.prepare.source import file_sha256

NOTE = "digests.json"
TICK = 50_000_000
"""nanoseconds; Linux stamps files with its timer's ticks, 1 to 10 ms apart"""


class Digests:
    """Sha256 of files, remembered in a note."""

    def __init__(self, folder: Path) -> None:
        """Read the note of a folder, if there is one that can be read."""
        self._note = folder / NOTE
        self._known: dict[str, Any] = {}
        self._used: dict[str, Any] = {}
        try:
            known = json.loads(self._note.read_text("utf-8"))
        except (OSError, ValueError):
            return
        self._known = known if isinstance(known, dict) else {}

    def __call__(self, path: Path) -> str:
        """Sha256 of a file's bytes, in hex.

        Raises:
            InputError: the file is missing or cannot be read.
        """
        name = str(path.absolute())
        before = _state(path)
        note = self._known.get(name)
        if before and isinstance(note, dict) and note.get("state") == before:
            self._used[name] = note
            return str(note["sha256"])
        age = time.time_ns() - before[-1] if before else -1
        if 0 <= age < TICK:
            time.sleep((TICK - age) / 1e9)
        sha256 = file_sha256(path)
        if age >= 0 and before == _state(path):
            self._used[name] = {"state": before, "sha256": sha256}
        return sha256

    def save(self) -> None:
        """Write the note, of the files that were asked for since it was read."""
        if self._used != self._known:
            part = self._note.with_name(self._note.name + ".part")
            part.write_text(json.dumps(self._used, indent=1), "utf-8")
            part.replace(self._note)


def _state(path: Path) -> list[int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return [stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns]
