"""The digests over a whole store. Standard library only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from pipeline.store.layout import sidecar_file


def store_digest(samples: Iterable[tuple[str, str]]) -> str:
    r"""The store digest: the same states for the same ids, whatever the sharding, the order and the restarts.

    The sha256 over one line of JSON `["<id>","<content sha256>"]` plus a newline per sample (ASCII, other characters as
    `\u` escapes), in order of the ids' code points.

    Args:
        samples: (id, content sha256) pairs, in any order.
    """
    return hash_lines(sorted(samples))


def sidecars_digest(store: Path, units: Iterable[int]) -> str:
    """The sha256 over one line of JSON `["<sidecar's name>","<its sha256>"]` plus a newline per unit, in order."""
    files = (sidecar_file(store, unit) for unit in sorted(units))
    return hash_lines((file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files)


def hash_lines(rows: Iterable[tuple[str, str]]) -> str:
    """The sha256 over a line of JSON, an array of two strings without spaces, for each of the pairs."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()
