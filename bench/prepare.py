"""Preparing short conversations: rows a second against the bare tokenizer, memory as rows grow, speculators beside it.

    ./eyas bench.prepare

Conversations are made up (two or four turns of 3 to 40 words, ShareGPT's form, all different): 10^4, 10^5 and 10^6.
Each size is one run of `python -m pipeline prepare`, from its start to its end: the rate counts everything, imports
and writing included. Before and after it the bare tokenizer has a turn on the first rows of the same file, with as
many threads as the command has workers; then speculators 0.3.0 prepares the same rows. Memory is the peak of the
process tree (Pss), looked at every two seconds, as a look takes 35 ms of a core: "held" is what the kernel cannot drop,
the rest are pages of files.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.watch import memory, tree

WORDS = (
    "the of and to in is that for with as on you this be are not can have from what how when which will there "
    "tokenizer draft target model hidden state layer vector speculative decoding acceptance gradient learning rate "
    "river mountain window kitchen because although however therefore question answer explain describe compare "
    "Paris Tokyo Amsterdam 1984 2,048 3.14 e.g. naïve café данные 模型 مرحبا def return import self. () {} == -> \n"
)
LOOK_EVERY = 2.0
"""seconds"""
Turn = dict[str, Any]


def main(argv: list[str]) -> int:
    """Measure and print the table."""
    flags = argparse.ArgumentParser(prog="python -m bench.prepare", description=__doc__.split("\n")[0])
    flags.add_argument("--model-path", type=Path, required=True, help="the target, of which the tokenizer is used")
    flags.add_argument("--rows", type=int, action="append", help="of a run; repeatable (default: 10^4, 10^5, 10^6)")
    flags.add_argument("--workers", type=int, default=2, help="processes, and the tokenizer's threads (default 2)")
    flags.add_argument("--bare-rows", type=int, default=50_000, help="of a turn of the bare tokenizer (default 50,000)")
    flags.add_argument("--folder", type=Path, default=Path("runs"), help="where to write (default: %(default)s)")
    given = flags.parse_args(argv)
    sizes = sorted(given.rows or [10_000, 100_000, 1_000_000])
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench.prepare-", dir=given.folder) as name:
        work = Path(name)
        results = {size: measure(given, work, size) for size in sizes}
    show(given, results)
    return 0


def measure(given: argparse.Namespace, work: Path, size: int) -> Turn:
    """One size: the command between two turns of the bare tokenizer."""
    source = work / f"{size}.jsonl"
    make(source, size)
    bare_rows = min(size, given.bare_rows)
    first = turn(given, work, "bare", source, bare_rows)
    out = work / f"out-{size}"
    places = [f"--input={source}", f"--model-path={given.model_path}", f"--output-dir={out}"]
    ours = watched([sys.executable, "-m", "pipeline", "prepare", *places, f"--workers={given.workers}"], work, {})
    header = json.loads((out / "tokenized.header.json").read_bytes())
    assert header["rows_used"] == size, header
    last = turn(given, work, "bare", source, bare_rows)
    (out / "tokenized.jsonl").unlink()
    theirs = turn(given, work, "speculators", source, size)
    shutil.rmtree(work / "cache")
    source.unlink()
    bare = statistics.mean(one["rows"] / one["seconds"] for one in (first, last))
    return ours | {"rate": size / ours["wall"], "bare": bare, "tokens": header["tokens"], "theirs": theirs}


def make(path: Path, rows: int) -> None:
    """Write made-up conversations, the same ones for the same number."""
    draw = random.Random(0)  # noqa: S311 - words, not secrets
    known = WORDS.split(" ")
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            turns = []
            for place in range(2 * draw.randint(1, 2)):
                words = draw.choices(known, k=draw.randint(3, 40))
                said = f"{number} {' '.join(words)}".strip()
                turns.append({"from": ("human", "gpt")[place % 2], "value": said})
            file.write(json.dumps({"conversations": turns}, ensure_ascii=False) + "\n")


def turn(given: argparse.Namespace, work: Path, way: str, source: Path, rows: int) -> Turn:
    """A turn of something else on the same rows."""
    flags = [f"--way={way}", f"--input={source}", f"--model-path={given.model_path}", f"--work={work}"]
    command = [sys.executable, "-m", "bench.prepare_turn", *flags, f"--rows={rows}", f"--workers={given.workers}"]
    # speculators' processes are forked, and the tokenizer has one thread in each.
    threads = {"RAYON_NUM_THREADS": str(given.workers)} if way == "bare" else {}
    return watched(command, work, threads)


def watched(command: list[str], work: Path, environment: dict[str, str]) -> Turn:
    """Run a command: its last line where it is JSON, its seconds, and its memory."""
    with (work / "said.txt").open("w+") as said:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=said, text=True, env=os.environ | environment
        )
        held = whole = 0
        while process.poll() is None:
            now = [memory(pid) for pid in tree(process.pid)]
            held, whole = max(held, sum(one[0] for one in now)), max(whole, sum(one[1] for one in now))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_EVERY)
        wall = time.perf_counter() - start
        if process.returncode:
            said.seek(0)
            sys.exit(f"a turn failed by itself:\n{said.read()}")
    assert process.stdout
    last = process.stdout.read().splitlines()[-1]
    found: Turn = json.loads(last) if last.startswith("{") else {}
    return found | {"wall": wall, "held": held, "whole": whole}


def show(given: argparse.Namespace, results: dict[int, Turn]) -> None:
    """The tables, with ratios."""
    table = Table("rows", "tokens", "rows/s", "bare tokenizer", "ratio", "memory held", "with files' pages")
    for size, one in results.items():
        table.add_row(
            f"{size:,}",
            f"{one['tokens'] / 1e6:.1f} M",
            f"{one['rate']:,.0f}",
            f"{one['bare']:,.0f}",
            f"{one['rate'] / one['bare']:.3f}",
            f"{one['held'] / 2**20:,.0f} MiB",
            f"{one['whole'] / 2**20:,.0f} MiB",
        )
    beside = Table("rows", "speculators, whole run", "once it has started", "memory held", "this over that, whole runs")
    for size, one in results.items():
        theirs = one["theirs"]
        beside.add_row(
            f"{size:,}",
            f"{size / theirs['wall']:,.0f} rows/s",
            f"{size / theirs['seconds']:,.0f} rows/s",
            f"{theirs['held'] / 2**20:,.0f} MiB",
            f"{one['rate'] * theirs['wall'] / size:.2f}",
        )
    Console().print(f"{given.workers} workers, {os.cpu_count()} CPUs", table, beside)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
