"""Where things are: the checkout, and the cache outside it (docs/architecture.md has the table)."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def cache_root() -> Path:
    """The folder of everything that can be made again, by the XDG base directory rules."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules have a relative path ignored.
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "eyas"
