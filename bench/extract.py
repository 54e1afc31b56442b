"""Extraction against the engine's bare prefill: the same samples, engine settings and run.

    ./eyas bench.extract

Each round measures both, one after the other, each in a process of its own (two engines at once would take each
other's cores): *extraction* is the stage's own path (units through the patched generator, states to the store), *bare
prefill* is stock vLLM's `LLM` given all samples at once with one token to generate, which is the fastest it can do.
The engine's loading and a warm-up are not counted. Speeds are quoted as the ratio of the two within a round.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from pipeline.extract.job import Job, settle
from pipeline.extract.plan import read_unit
from pipeline.extract.settings import ExtractSettings


@dataclass(frozen=True)
class Measurement:
    """Tokens a second, and the peak of all processes' memory (proportional set size) in bytes."""

    rate: float
    memory: int


def main(argv: list[str]) -> int:
    """Measure, and print the table."""
    flags = argparse.ArgumentParser(prog="python -m bench.extract", description=__doc__.split("\n")[0])
    flags.add_argument("--model-path", type=Path, required=True)
    flags.add_argument("--prepared-data", type=Path, required=True)
    flags.add_argument("--rounds", type=int, default=3, help="rounds, each of both (default: %(default)s)")
    flags.add_argument("--dtype", default="auto", help="what the target computes in (default: %(default)s)")
    flags.add_argument("--only", choices=sorted(WAYS), help=argparse.SUPPRESS)
    given = flags.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder:
        settings = ExtractSettings(
            model_path=given.model_path,
            prepared_data=given.prepared_data,
            output_dir=Path(folder) / "store",
            dtype=given.dtype,
        )
        if given.only:
            print(json.dumps(vars(measure(WAYS[given.only], settle(settings)))))
            return 0
    command = [sys.executable, "-m", "bench.extract", *argv, "--only"]
    rounds = [{way: run(command, way) for way in WAYS} for _ in range(given.rounds)]
    show(rounds, settle(settings))
    return 0


def run(command: list[str], way: str) -> Measurement:
    """Measure in a process of its own."""
    with tempfile.TemporaryFile("w+") as log:
        done = subprocess.run([*command, way], stdout=subprocess.PIPE, stderr=log, text=True, check=False)
        if done.returncode:
            log.seek(0)
            sys.exit(f"measuring {way} failed:\n{log.read()[-4000:]}")
    return Measurement(**json.loads(done.stdout.strip().splitlines()[-1]))


def measure(way: Callable[[Job], Callable[[], None]], job: Job) -> Measurement:
    """Prepare a way, warm it up, then time it while watching the memory of all its processes."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    with watch_memory() as peak:
        timed = way(job)
        started = time.perf_counter()
        timed()
        seconds = time.perf_counter() - started
    return Measurement(job.tokens / seconds, peak.bytes)


def extraction(job: Job) -> Callable[[], None]:
    """The stage's path, from the first unit's tokens to the last shard's fsync."""
    from pipeline.extract.engines.protocol import start_engine
    from pipeline.extract.progress import RunProgress
    from pipeline.extract.run import extract_units
    from pipeline.store.writer import Store

    engine = start_engine("speculators", job.engine_options())
    engine.extract([sample.input_ids for sample in read_unit(job.settings.prepared_data, job.plan.units[0])])
    store = Store.open_for_run(job.settings.output_dir, job.identity())
    events = job.settings.output_dir / "events.jsonl"
    progress = RunProgress(sys.stderr, events, samples=job.samples, tokens=job.tokens, done_tokens=0)

    atexit.register(engine.close)
    return lambda: extract_units(job, store, job.plan.units, engine, progress)


def bare_prefill(job: Job) -> Callable[[], None]:
    """Stock vLLM with the engine settings of the generator, and nothing captured."""
    from pipeline.extract.engines.speculators import set_environment

    options = job.engine_options()
    set_environment(options)
    from vllm import LLM, SamplingParams, TokensPrompt
    from vllm.platforms import current_platform

    llm = LLM(
        str(options.target.folder),
        dtype=options.dtype,
        max_model_len=options.max_seq_len + 1,
        max_num_batched_tokens=max(options.token_budget, options.max_seq_len + 1),
        max_num_seqs=options.batch_size,
        tensor_parallel_size=options.tp_size,
        enable_prefix_caching=False,
        enforce_eager=True,
        block_size=16,
        compilation_config={"custom_ops": ["-rotary_embedding"] if current_platform.is_cpu() else []},
        disable_log_stats=True,
    )
    one_token = SamplingParams(max_tokens=1, temperature=0.0, detokenize=False)
    prompts = [
        TokensPrompt(prompt_token_ids=sample.input_ids)
        for unit in job.plan.units
        for sample in read_unit(job.settings.prepared_data, unit)
    ]
    llm.generate(prompts[: len(job.plan.units[0].samples)], one_token, use_tqdm=False)
    return lambda: llm.generate(prompts, one_token, use_tqdm=False) and None


WAYS: dict[str, Callable[[Job], Callable[[], None]]] = {"extraction": extraction, "bare prefill": bare_prefill}


class watch_memory:
    """Samples the memory of this process and its children; `bytes` is the largest sum seen."""

    def __init__(self) -> None:
        self.bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> watch_memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            total = 0
            for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                try:
                    total += process.memory_full_info().pss
                except psutil.NoSuchProcess:
                    continue
            self.bytes = max(self.bytes, total)


def show(rounds: list[dict[str, Measurement]], job: Job) -> None:
    """The table, and the ratio's median, smallest and largest."""
    settings = job.settings
    table = Table(title=f"{job.tokens:,} tokens in {job.samples} samples, {job.dtype}, {len(job.layer_ids)} layers")
    for column in ("round", *(f"{way}, tok/s" for way in WAYS), "ratio", *(f"{way}, peak memory" for way in WAYS)):
        table.add_column(column, justify="right")
    ratios = []
    for number, ways in enumerate(rounds, start=1):
        ratios.append(ways["extraction"].rate / ways["bare prefill"].rate)
        rates = [f"{ways[way].rate:,.0f}" for way in WAYS]
        memories = [f"{ways[way].memory / 2**20:,.0f} MiB" for way in WAYS]
        table.add_row(str(number), *rates, f"{ratios[-1]:.3f}", *memories)
    console = Console()
    console.print(table)
    console.print(
        f"extraction over bare prefill: median {statistics.median(ratios):.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f}); units of at most {settings.batch_size} samples and "
        f"{settings.token_budget} tokens, {psutil.cpu_count()} cores"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
