"""`select_lock.py LOCK [--only NAMES] [--without NAMES]`: entries of a lock, for one step of an image build.

Standard library only and no import of ours: it is mounted alone, so that the layer it makes changes with the lock only.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path


def select(text: str, only: set[str], without: set[str]) -> str:
    """The lines of the wanted entries.

    Args:
        text: a lock: requirements, each followed by its hashes on continued lines.
        only: normalised names to keep; all when empty.
        without: normalised names to leave out.
    """
    # A package can have several entries, for different machines.
    entries = [
        (normalised(entry), entry) for entry in re.findall(r"^[^#\s].*?(?<!\\)$", text, re.MULTILINE | re.DOTALL)
    ]
    if lacking := only - {name for name, _ in entries}:
        sys.exit(f"select_lock.py: the lock has no {', '.join(sorted(lacking))}")
    return "".join(f"{entry}\n" for name, entry in entries if name not in without and (not only or name in only))


def normalised(entry: str) -> str:
    """The name a requirement begins with, by the rule of PEP 503."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", entry, maxsplit=1)[0]).lower()


if __name__ == "__main__":
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("lock", type=Path)
    flags.add_argument("--only", default="", help="names with blanks between them")
    flags.add_argument("--without", default="", help="names with blanks between them")
    given = flags.parse_args()
    print(select(given.lock.read_text(encoding="utf-8"), set(given.only.split()), set(given.without.split())), end="")
