"""Writing a store, with the engine replaced by a generator of real-sized states: as fast as the disk itself?

    ./eyas bench.store

*Ours* is what an engine's worker does with a step's states: copy them into one of two host buffers, take the norms,
hand them to the `Committer`, and go on with the next step when a buffer is free. *Raw* is the same bytes with plain
write(2) in pieces of 16 MiB and an fsync at each file's end. They take turns in one process on one file system, in
alternating order, so that a disk whose speed drifts slows both; what a turn wrote is deleted after it, unmeasured.
*Shipped* is the path of speculators 0.3.0, see `bench.shipped`. Quoted are ratios within this run, and the resident
memory of the process, which must not grow.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import psutil
import torch
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from bench import shipped
from pipeline.store.committer import Committer
from pipeline.store.content import row_norms, tensor_bytes
from pipeline.store.layout import SHARDS
from pipeline.store.manifest import store_identity
from pipeline.store.records import OrderedSample, UnitOrder
from pipeline.store.writer import Store

ROWS, LAYERS, HIDDEN = 8192, 4, 7168
"""A step of Kimi-K2.5 with extract's default token budget and layers: 470 MB of bfloat16."""
SAMPLE_ROWS = 2048
PIECE = 16 << 20


@dataclass(frozen=True)
class Turn:
    """Some steps, all the way to the disk."""

    bytes: int
    seconds: float
    cpu_seconds: float
    """of this process, the kernel's work for it included; writeback by the kernel's own threads is not"""
    memory: list[int]
    """resident bytes after each step"""

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.bytes / self.seconds


Way = Callable[[], list[int]]
"""takes a turn; returns the resident bytes after each step"""


def main(argv: list[str]) -> int:
    """Measure and print."""
    flags = argparse.ArgumentParser(prog="python -m bench.store", description=__doc__.split("\n")[0])
    flags.add_argument("--folder", type=Path, help="where to write (default: the system's folder for temporary files)")
    flags.add_argument("--steps", type=int, default=16, help="steps in a turn (default: %(default)s)")
    flags.add_argument(
        "--equivalent-gb", type=float, default=50.0, help="how much each way writes in all (default: %(default)s)"
    )
    given = flags.parse_args(argv)
    torch.set_num_threads(1)  # as in a worker whose engine has the other cores
    source = torch.randn(ROWS, LAYERS, HIDDEN).to(torch.bfloat16)
    turns = max(1, round(given.equivalent_gb * 1e9 / source.nbytes / given.steps))
    ours, raw = list[Turn](), list[Turn]()
    with tempfile.TemporaryDirectory(prefix="eyas-bench-", dir=given.folder) as folder:
        with Store.open_for_run(Path(folder) / "store", identity()) as store:
            ways: list[tuple[list[Turn], Way]] = [
                (ours, extraction(store, source, given.steps)),
                (raw, partial(plain_files, Path(folder), source, given.steps)),
            ]
            for _, way in ways:  # the pages of buffers and heap are there from now on
                measured(way, given.steps * source.nbytes)
                delete(Path(folder))
            for turn in range(turns):
                for results, way in ways if turn % 2 else reversed(ways):
                    results.append(measured(way, given.steps * source.nbytes))
                    delete(Path(folder))
        rate = shipped.rate(Path(folder), (ROWS, LAYERS, HIDDEN), SAMPLE_ROWS)
    show(ours, raw, rate)
    return 0


def measured(way: Way, size: int) -> Turn:
    """Take a turn that writes so many bytes."""
    before, started = os.times(), time.perf_counter()
    memory = way()
    seconds, after = time.perf_counter() - started, os.times()
    return Turn(size, seconds, after.user + after.system - before.user - before.system, memory)


def delete(folder: Path) -> None:
    """Delete what a turn wrote."""
    for file in [*folder.glob("*.raw"), *(folder / "store" / SHARDS).iterdir()]:
        file.unlink()


def extraction(store: Store, source: torch.Tensor, steps: int) -> Way:
    """Our own path, with two buffers that are kept from turn to turn."""
    process = psutil.Process()
    buffers = SimpleQueue[torch.Tensor]()
    for _ in range(2):
        buffers.put(torch.empty_like(source))

    def turn() -> list[int]:
        memory = []
        with Committer(store.spec) as committer:
            for unit in range(steps):
                buffer = buffers.get()
                buffer.copy_(source)
                committer.submit(order(unit), buffer, row_norms(buffer), partial(buffers.put, buffer))
                memory.append(process.memory_info().rss)
            if failure := committer.committed(wait=True).failure:
                raise failure
        return memory

    return turn


def order(unit: int) -> UnitOrder:
    """A unit of samples of 2,048 tokens."""
    tokens, mask = list(range(SAMPLE_ROWS)), [0, 1] * (SAMPLE_ROWS // 2)
    samples = (OrderedSample(f"{unit}-{at}", at + 1, tokens, mask) for at in range(ROWS // SAMPLE_ROWS))
    return UnitOrder(unit, tuple(samples))


def plain_files(folder: Path, source: torch.Tensor, steps: int) -> list[int]:
    """A turn of writing the same bytes with nothing else done."""
    content = tensor_bytes(source)
    for step in range(steps):
        file = folder / f"{step}.raw"
        with file.open("wb", buffering=0) as stream:
            for start in range(0, len(content), PIECE):
                assert stream.write(content[start : start + PIECE]) == len(content[start : start + PIECE])
            os.fsync(stream.fileno())
    return []


def identity() -> dict[str, object]:
    """Of a store with states of this form."""
    return store_identity(
        engine="generator",
        dtype="bfloat16",
        storage="bf16",
        hidden_size=HIDDEN,
        num_layers=61,
        vocab_size=163840,
        output_layer_ids=(1, 29, 57, 60),
        digests=dict.fromkeys(("data", "model", "stack", "plan"), "0" * 64),
        settings={},
    )


def show(ours: list[Turn], raw: list[Turn], shipped_rate: float) -> None:
    """The table and the figures."""
    table = Table(title=f"{decimal(ours[0].bytes)} a turn, on {decimal(sum(turn.bytes for turn in ours))} each")
    for column in ("turn", "ours, MB/s", "raw, MB/s", "ratio"):
        table.add_column(column, justify="right")
    for number, (one, other) in enumerate(zip(ours, raw, strict=True), start=1):
        table.add_row(str(number), f"{one.rate / 1e6:,.0f}", f"{other.rate / 1e6:,.0f}", f"{one.rate / other.rate:.3f}")
    whole, plain = (sum(turn.bytes for turn in way) / sum(turn.seconds for turn in way) for way in (ours, raw))
    ratios = [one.rate / other.rate for one, other in zip(ours, raw, strict=True)]
    memory = [step for turn in ours for step in turn.memory]
    quarter = max(1, len(memory) // 4)
    first, last = statistics.mean(memory[:quarter]), statistics.mean(memory[-quarter:])
    per_gb = [sum(turn.cpu_seconds for turn in way) / sum(turn.bytes for turn in way) * 1e9 for way in (ours, raw)]
    console = Console(soft_wrap=True)
    console.print(table)
    console.print(
        f"ours over raw: all turns together {whole / plain:.3f}, median {statistics.median(ratios):.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f})\n"
        f"shipped path: {shipped_rate / 1e6:,.0f} MB/s; ours is {whole / shipped_rate:.1f} times that\n"
        f"CPU seconds a GB: ours {per_gb[0]:.2f} (filling a buffer and its norms included), raw {per_gb[1]:.2f}\n"
        f"resident memory after a step: at most {max(memory) / 2**20:,.0f} MiB, in the end {memory[-1] / 2**20:,.0f}; "
        f"first quarter {first / 2**20:,.0f}, last quarter {last / 2**20:,.0f} ({last / first - 1:+.2%})"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
