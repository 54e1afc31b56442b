"""Training from a store against training over speculators' own data path: tokens a second, memory, waiting for data.

    ./eyas bench.train

Both train the same draft with the same loss and optimizer on the same samples, in the same order and batches (checked):

* store: `pipeline.train`'s loader and trainer on a mapped store;
* speculators: speculators 0.9.0's data set of Arrow tables and a safetensors file a sample (`./eyas store.export --to
  speculators-0.9.0`), its loader with as many workers as it starts by default, and its trainer.

Turns alternate, each a process of its own. Tokens/s count from the first batch on, so that the start of 12 workers does
not, which is shown beside; what they had read ahead by then is theirs to keep. speculators pads every batch to its full
length, the store's loader only as far as it must: that is part of the two paths. Memory is that of the process with its
workers (Pss, looked at twice a second): "held" is what the kernel cannot drop, the rest are pages of files.

The data is made up (the demo's sizes, states random), or with --store a store's; in the page cache for both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.train_data import DEMO, make
from bench.watch import memory, tree
from pipeline.store.export import export
from pipeline.store.manifest import read_manifest

WAYS = ("store", "speculators")
DEFAULT_WORKERS = 12
"""speculators' (train/config/schema.py)"""
Turn = dict[str, Any]


def main(argv: list[str]) -> int:
    """Measure and print the table."""
    flags = argparse.ArgumentParser(prog="python -m bench.train", description=__doc__.split("\n")[0])
    flags.add_argument("--store", type=Path, help="train on this one instead of a made-up one")
    flags.add_argument("--model-path", type=Path, help="the store's target; what its manifest names when not given")
    flags.add_argument("--folder", type=Path, default=Path("runs"), help="where to write (default: %(default)s)")
    flags.add_argument("--steps", type=int, default=80, help="optimizer steps of a turn (default: %(default)s)")
    flags.add_argument("--turns", type=int, default=3, help="of each way (default: %(default)s)")
    flags.add_argument("--batch-tokens", type=int, default=512, help="of a step (default: %(default)s)")
    flags.add_argument("--draft-vocab-size", type=int, default=12_000, help="(default: %(default)s)")
    flags.add_argument("--workers", type=int, default=DEFAULT_WORKERS, help="speculators' (default: %(default)s)")
    given = flags.parse_args(argv)
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench.train-", dir=given.folder) as name:
        work = Path(name)
        if given.store:
            target, store = given.model_path or Path(read_manifest(given.store)["info"]["model_path"]), given.store
        else:
            target, store = make(work, DEMO)
        exported = work / "exported"
        export(store, exported, "speculators-0.9.0")
        command = [sys.executable, "-m", "bench.train_turn", f"--store={store}", f"--model-path={target}"]
        command += [f"--{name}={getattr(given, name.replace('-', '_'))}" for name in PASSED_ON]
        results: dict[str, list[Turn]] = {way: [] for way in WAYS}
        for _ in range(given.turns):
            for way in WAYS:
                results[way].append(turn([*command, f"--exported={exported}", f"--way={way}"], work))
    show(results)
    return 0


PASSED_ON = ("steps", "batch-tokens", "draft-vocab-size", "workers")


def turn(command: list[str], work: Path) -> Turn:
    """One way's turn in a process of its own, watched."""
    with (work / "said.txt").open("w+") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
        held = whole = 0
        while process.poll() is None:
            now = [memory(pid) for pid in tree(process.pid)]
            held, whole = max(held, sum(one[0] for one in now)), max(whole, sum(one[1] for one in now))
            time.sleep(0.5)
        if process.returncode:
            said.seek(0)
            sys.exit(f"a turn failed by itself:\n{said.read()}")
    assert process.stdout
    found: Turn = json.loads(process.stdout.read().splitlines()[-1])
    return found | {"held": held, "whole": whole}


def show(results: dict[str, list[Turn]]) -> None:
    """The table of medians, each turn's rate, and the ratios turn by turn."""
    batches = {json.dumps(found["batches"]) for turns in results.values() for found in turns}
    assert len(batches) == 1, "the turns did not train on the same batches"
    tokens = sum(batch[0] for batch in results["store"][0]["batches"])
    Console().print(f"{len(results['store'][0]['batches'])} steps, {tokens:,} tokens a turn, {os.cpu_count()} CPUs")
    names = ("data path", "tokens/s", "each turn", "waiting for data", "first batch after", "held", "with files' pages")
    table = Table(*names)
    for way, turns in results.items():
        middle = {name: statistics.median(found[name] for found in turns) for name in turns[0] if name != "batches"}
        table.add_row(
            way,
            f"{middle['rate']:,.1f}",
            " ".join(f"{found['rate']:,.1f}" for found in turns),
            f"{middle['waiting']:.2%}",
            f"{middle['first']:.1f} s",
            f"{middle['held'] / 2**20:,.0f} MiB",
            f"{middle['whole'] / 2**20:,.0f} MiB",
        )
    Console().print(table)
    ours, theirs = (results[way] for way in WAYS)
    for name, text in (("rate", "tokens/s"), ("held", "memory held"), ("whole", "memory with files' pages")):
        ratios = [one[name] / other[name] for one, other in zip(ours, theirs, strict=True)]
        spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
        print(f"store over speculators, {text}: {statistics.median(ratios):.3f} ({spread})")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
