"""Makes the golden stores: python -m tests.golden.make_stores FOLDER

Only for a new format or storage: those that are here stay as they are, for every later version has to read them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from pipeline.store.layout import FORMAT, LOCK, WRITER_LOCK
from pipeline.store.manifest import store_identity
from pipeline.store.records import CapturedSample, Rejection
from pipeline.store.writer import Store
from tests.golden.formula import HIDDEN, LAYERS, REJECTED, UNITS, input_ids, loss_mask, states


def main(folder: Path) -> None:
    for storage in ("bf16", "bf16-zstd", "fp8"):
        make(folder / f"store-{FORMAT}-{storage}", storage)


def make(folder: Path, storage: str) -> None:
    identity = store_identity(
        engine="golden",
        dtype="bfloat16",
        storage=storage,
        hidden_size=HIDDEN,
        num_layers=8,
        vocab_size=163_840,
        output_layer_ids=LAYERS,
        digests={name: name[0] * 64 for name in ("data", "model", "stack", "plan")},
        settings={"tp_size": 1},
    )
    with Store.open_for_run(folder, identity) as store:
        for unit, samples in UNITS.items():
            captured = [
                CapturedSample(
                    name, input_ids(name, rows), loss_mask(rows), torch.tensor(states(name, rows)).bfloat16()
                )
                for name, rows in samples.items()
            ]
            rejected = (
                [Rejection(name, reason, line) for name, line, reason in [REJECTED[unit]]] if unit in REJECTED else []
            )
            store.write_unit(unit, captured, rejected)
        store.finalise([], 5)
    for lock in (LOCK, WRITER_LOCK):
        (folder / lock).unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
