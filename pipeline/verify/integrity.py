"""Whether a store is what its writer wrote, and adds up: every byte is read, every hash computed again."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.errors import StoreDamagedError
from pipeline.extract.layers import to_input_numbering
from pipeline.store.check import unit_faults
from pipeline.store.digest import sidecars_digest, store_digest
from pipeline.store.layout import REJECTED, SHARDS, unit_of
from pipeline.store.manifest import read_manifest
from pipeline.store.sidecar import Sidecar, read_sidecar
from pipeline.store.spec import StoreSpec


@dataclass
class Integrity:
    """What was found; `faults` is empty if the store is sound."""

    manifest: dict[str, Any]
    faults: list[str] = field(default_factory=list)
    units: int = 0
    samples: int = 0
    rows: int = 0
    bytes: int = 0
    """of shard files"""
    non_finite: int = 0
    """NaN or infinite values in the states"""


def check_integrity(store: Path, progress: Callable[[int, int], None] = lambda done, of: None) -> Integrity:
    """Read a whole store and check everything that can be checked without the target.

    Args:
        store: its folder.
        progress: called with the units done and how many there are.

    Raises:
        InputError, StoreDamagedError, StoreMismatchError: there is no manifest that can be read.
    """
    found = Integrity(read_manifest(store))
    if found.manifest["status"] != "complete":
        found.faults.append("the store is not finished: run extract again to complete it")
    found.faults += _layer_faults(found.manifest)
    sidecars = []
    units = _units(store)
    for done, unit in enumerate(units):
        progress(done, len(units))
        try:
            sidecar = read_sidecar(store, unit)
        except StoreDamagedError as error:
            found.faults.append(str(error))
            continue
        sidecars.append(sidecar)
        found.faults += _unit_faults(store, sidecar, found)
    found.faults += list(_account_faults(store, found, sidecars))
    return found


def _units(store: Path) -> list[int]:
    """Units that have a sidecar or a shard file."""
    return sorted({unit for file in (store / SHARDS).glob("*") if (unit := unit_of(file)) is not None})


def _layer_faults(manifest: dict[str, Any]) -> Iterator[str]:
    ids, last = manifest["layer_ids"], manifest["num_layers"] - 1
    if ids["input"] != list(to_input_numbering(ids["output"])):
        yield f"manifest: input layer ids {ids['input']} are not one more than the output ids {ids['output']}"
    if any(not 0 <= layer <= last for layer in ids["output"]) or ids["output"] != sorted(set(ids["output"])):
        yield f"manifest: layer ids {ids['output']} are not increasing numbers from 0 to {last}"


def _unit_faults(store: Path, sidecar: Sidecar, found: Integrity) -> list[str]:
    found.units += 1
    found.samples += len(sidecar.samples)
    found.rows += sidecar.rows
    found.bytes += sidecar.bytes or 0
    faults, non_finite = unit_faults(StoreSpec.of(store, found.manifest), sidecar)
    found.non_finite += non_finite
    return faults


def _account_faults(store: Path, found: Integrity, sidecars: list[Sidecar]) -> Iterator[str]:
    """Counts and digests over the whole store; those of an unfinished store are not known yet."""
    ids = Counter(sample.id for sidecar in sidecars for sample in sidecar.samples)
    yield from (f"sample {name!r} is in the store {times} times" for name, times in ids.items() if times > 1)
    if found.manifest["status"] != "complete":
        return
    counts = found.manifest["counts"]
    rejected = _rejected_lines(store)
    seen = {
        "captured": found.samples,
        "rejected": len(rejected),
        "units": found.units,
        "rows": found.rows,
        "trained_tokens": sum(sidecar.trained_tokens for sidecar in sidecars),
        "shard_bytes": found.bytes,
        "input": found.samples + len(rejected),
    }
    for name, number in seen.items():
        if counts[name] != number:
            yield f"{name}: the manifest says {counts[name]}, the store has {number}"
    if found.manifest["rejected_sha256"] != hashlib.sha256(b"".join(rejected)).hexdigest():
        yield f"{REJECTED}: not the file that was written (sha256)"
    if found.manifest["sidecars_sha256"] != sidecars_digest(store, (sidecar.unit for sidecar in sidecars)):
        yield f"{SHARDS}/*.json: not the files that were written (sha256 over all)"
    samples = itertools.chain.from_iterable(sidecar.samples for sidecar in sidecars)
    if found.manifest["store_digest"] != store_digest((sample.id, sample.sha256) for sample in samples):
        yield "the store digest is not that of the samples"


def _rejected_lines(store: Path) -> list[bytes]:
    try:
        return (store / REJECTED).read_bytes().splitlines(keepends=True)
    except OSError:
        return []
