"""Two stores of the same samples, compared: how many samples differ in bits, and by how much.

    ./eyas bench.compare runs/one/store runs/two/store

For stores made with other batchings (`--batch-size`, `--token-budget`, `--tp-size`) or engines; docs/correctness.md has
the figures and says where the differences come from.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from pipeline.store.reader import StoreReader


def main(argv: list[str]) -> int:
    """Print the comparison; 1 if the stores do not hold the same samples."""
    flags = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__.split("\n")[0])
    flags.add_argument("store", type=Path, nargs=2)
    one, two = (StoreReader(folder) for folder in flags.parse_args(argv).store)
    if set(one.ids()) != set(two.ids()):
        print("the stores hold different samples", file=sys.stderr)
        return 1
    errors = {name: error(one, two, name) for name in one.ids()}
    differing = {name: by for name, by in errors.items() if by > 0}
    print(f"{len(errors)} samples, {len(differing)} differ in bits ({len(differing) / len(errors):.1%})")
    if differing:
        worst = max(differing, key=lambda name: differing[name])
        print(f"worst relative error over samples and layers: {differing[worst]:.1e}, in {worst}")
    return 0


def error(one: StoreReader, two: StoreReader, name: str) -> float:
    """The largest relative Frobenius error of a sample over its layers; 0 only where all bits are equal."""
    states, again = (torch.as_tensor(reader.sample(name).hidden_states) for reader in (one, two))
    if torch.equal(states, again):
        return 0.0
    states, again = states.float(), again.float()
    return float(((states - again).norm(dim=(0, 2)) / states.norm(dim=(0, 2))).max())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
