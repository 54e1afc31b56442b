"""Random reads of samples: from stores, and by torch.load of the .pt samples that speculators 0.3.0 writes and reads.

    ./eyas bench.read

The same data in every way: made up (samples of 200 to 2,000 rows of 4 layers of 2,048 values, 2 GB) or, with --store,
a store's. Each way reads every sample once, whole, in a random order, in processes of its own; ways take turns, and the
median of the rounds is shown. With a cold and a warm page cache the processes are new; in the "next epoch" they have
read every sample once before, in another order (and shared out otherwise), as a trainer's have from its second epoch
on.

"read(2)" reads the .pt files' bytes into one buffer: with a cold cache the bound that the disk sets. "speculators" is
its own data set, which puts a sample's layers side by side as its trainer wants them; in a store they lie so.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from speculators.train.data import Eagle3SampleFileDataset

from bench.read_data import STORAGES, make_pickles, make_store
from pipeline.store.dataset import HiddenStateDataset

ROUNDS = 3
PICKLES = "torch.load"

Read = Callable[[Iterable[int]], None]
"""reads samples by number, in this order"""


def main(argv: list[str]) -> None:
    """Measure and print the table."""
    flags = argparse.ArgumentParser(prog="python -m bench.read", description=__doc__.split("\n")[0])
    flags.add_argument("--store", type=Path, help="read this one's samples instead of made-up ones")
    flags.add_argument(
        "--folder", type=Path, default=Path("runs"), help="where to write the data (default: %(default)s)"
    )
    given = flags.parse_args(argv)
    given.folder.mkdir(parents=True, exist_ok=True)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="bench.read-", dir=given.folder) as work:
        with console.status("writing the data"):
            stores = {"store": given.store} if given.store else {s: make_store(Path(work) / s, s) for s in STORAGES}
            pickles = make_pickles(next(iter(stores.values())), Path(work) / "pickles")
        os.sync()
        ways: dict[str, tuple[Path, Callable[[Path], Read]]] = {
            "read(2)": (pickles, bytes_reader),
            PICKLES: (pickles, pickle_reader),
            "speculators": (pickles, speculators_reader),
            **{name: (folder, store_reader) for name, folder in stores.items()},
        }
        dataset = HiddenStateDataset(next(iter(stores.values())))
        size = int(dataset.rows.sum()) * len(dataset.index.spec.layer_ids) * dataset.index.spec.hidden_size * 2
        console.print(f"{len(dataset):,} samples, {size / 1e6:,.0f} MB of states, {os.cpu_count()} CPUs")
        console.print(measure(ways, len(dataset), size))


def measure(ways: dict[str, tuple[Path, Callable[[Path], Read]]], samples: int, size: int) -> Table:
    """The table: samples a second of every way, and over torch.load's."""
    table = Table(
        "cache", "processes", "way", "samples/s", "MB/s", "CPU ms a sample", "over torch.load", "least to most"
    )
    for cache in ("cold", "warm", "next epoch"):
        for processes in (1, 2):
            seconds, cpu = {name: list[float]() for name in ways}, dict.fromkeys(ways, 0.0)
            for round_ in range(ROUNDS):
                for name, (folder, reader) in ways.items():
                    if cache == "cold":
                        drop(folder)
                    before = 1 if cache == "next epoch" else 0
                    taken, used = timed(reader, folder, samples, processes, seed=round_, epochs_before=before)
                    seconds[name].append(taken)
                    cpu[name] += used
            for name, times in seconds.items():
                ratios = [theirs / ours for theirs, ours in zip(seconds[PICKLES], times, strict=True)]
                rate = 1 / statistics.median(times)
                table.add_row(
                    cache,
                    str(processes),
                    name,
                    f"{samples * rate:,.0f}",
                    f"{size * rate / 1e6:,.0f}",
                    f"{1000 * cpu[name] / samples / ROUNDS:.2f}",
                    f"{statistics.median(ratios):.2f}",
                    f"{min(ratios):.2f} to {max(ratios):.2f}",
                )
    return table


def timed(  # noqa: PLR0913, PLR0917 - the conditions of a measurement
    reader: Callable[[Path], Read], folder: Path, samples: int, processes: int, seed: int, epochs_before: int
) -> tuple[float, float]:
    """Seconds until all samples were read, each by one of the processes, and CPU seconds of all these.

    Opening data set or folder is not counted, nor are epochs before.
    """
    context = multiprocessing.get_context("fork")
    barrier, cpu = context.Barrier(processes + 1), context.Array("d", processes)
    rng = np.random.default_rng(seed)
    epochs = [rng.permutation(samples) for _ in range(epochs_before + 1)]
    workers = [
        context.Process(
            target=work,
            args=(reader, folder, [epoch[at::processes].tolist() for epoch in epochs], barrier, cpu, at),
        )
        for at in range(processes)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    start = time.perf_counter()
    for worker in workers:
        worker.join()
    taken = time.perf_counter() - start
    if any(worker.exitcode for worker in workers):
        raise SystemExit("a reading process failed")
    return taken, sum(cpu)


def work(  # noqa: PLR0913, PLR0917 - a process's arguments
    reader: Callable[[Path], Read], folder: Path, epochs: list[list[int]], barrier: Any, cpu: Any, at: int
) -> None:
    """Reading process number `at`; its last epoch is the one that counts."""
    torch.set_num_threads(1)
    read = reader(folder)
    *earlier, order = epochs
    read(itertools.chain.from_iterable(earlier))
    barrier.wait()
    before = time.process_time()
    read(order)
    cpu[at] = time.process_time() - before


def bytes_reader(folder: Path) -> Read:
    """Reads the bytes of a .pt file."""
    buffer = bytearray(max(file.stat().st_size for file in folder.iterdir()))

    def read(numbers: Iterable[int]) -> None:
        for number in numbers:
            with (folder / f"data_{number}.pt").open("rb", buffering=0) as file:
                file.readinto(buffer)

    return read


def pickle_reader(folder: Path) -> Read:
    """Loads as speculators 0.3.0's data set does."""

    def read(numbers: Iterable[int]) -> None:
        for number in numbers:
            sample = torch.load(folder / f"data_{number}.pt", mmap=True, weights_only=True, map_location="cpu")
            for tensor in (*sample["hidden_states"], sample["input_ids"], sample["loss_mask"]):
                touch(tensor)

    return read


def speculators_reader(folder: Path) -> Read:
    """Reads with speculators 0.3.0's data set."""
    count = len(list(folder.iterdir()))
    files = [str(folder / f"data_{number}.pt") for number in range(count)]
    dataset = Eagle3SampleFileDataset(10**6, file_list=files, hidden_states_dtype=torch.bfloat16)

    def read(numbers: Iterable[int]) -> None:
        for number in numbers:
            sample = dataset[number]
            for name in ("hidden_states", "verifier_last_hidden_states", "input_ids", "loss_mask"):
                touch(sample[name])

    return read


def store_reader(folder: Path) -> Read:
    """Reads as a trainer of this project does."""
    dataset = HiddenStateDataset(folder)

    def read(numbers: Iterable[int]) -> None:
        for sample in dataset.in_order(numbers):
            for tensor in (sample["hidden_states"], sample["input_ids"], sample["loss_mask"]):
                touch(tensor)

    return read


def touch(tensor: torch.Tensor) -> None:
    """Read all of a tensor's bytes, as fast as that goes."""
    words = tensor.view(torch.uint8).view(-1)
    words[: len(words) // 8 * 8].view(torch.int64).sum()


def drop(folder: Path) -> None:
    """Have a folder's files out of the page cache (a virtual machine's host may still have them in its own)."""
    for file in files(folder):
        for _ in range(100):  # pages that a core has just worked on stay for a moment
            if dropped(file):
                break
            time.sleep(0.02)
        else:
            raise SystemExit(f"{file} stays in the page cache: its file system cannot be measured cold")


def dropped(file: Path) -> bool:
    """Ask for a file to be dropped from the page cache, and say whether its beginning is gone."""
    handle = os.open(file, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        return not (file.stat().st_size and os.preadv(handle, [bytearray(1)], 0, os.RWF_NOWAIT))
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


def files(folder: Path) -> Iterator[Path]:
    """The large files: those with states."""
    yield from (file for file in folder.rglob("*") if file.suffix in {".safetensors", ".pt"})


if __name__ == "__main__":
    main(sys.argv[1:])
