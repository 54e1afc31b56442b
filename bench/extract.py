"""Extraction against the engine's bare prefill: the same samples, engine settings and run.

    ./eyas bench.extract

*Extraction* is the stage's own path: a unit's tokens read, through the patched generator, its states committed to a
store. *Bare prefill* is stock vLLM's `LLM` given the same samples with one token to generate. Each has a process of its
own, loaded and warmed up beforehand; then unit after unit goes through both, one right after the other and the order
changing every time, so that a machine whose speed drifts slows both. A unit's commit is waited for, though in a real
run it overlaps with the next unit. Quoted is the ratio of the two speeds, unit by unit.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import psutil
from rich.console import Console
from rich.table import Table

from pipeline.extract.job import Job, settle
from pipeline.extract.plan import Unit, read_unit
from pipeline.extract.settings import ExtractSettings

# An engine's worker that waits spins for 3 s before it sleeps (vLLM's SpinSleepTimer).
REST_SECONDS = 4.0


def main(argv: list[str]) -> int:
    """Measure and print the table."""
    flags = argparse.ArgumentParser(prog="python -m bench.extract", description=__doc__.split("\n")[0])
    flags.add_argument("--model-path", type=Path, required=True)
    flags.add_argument("--prepared-data", type=Path, required=True)
    flags.add_argument("--rounds", type=int, default=3, help="times that all units are measured (default: %(default)s)")
    flags.add_argument("--dtype", default="auto", help="what the target computes in (default: %(default)s)")
    flags.add_argument("--way", choices=sorted(WAYS), help=argparse.SUPPRESS)
    given = flags.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder:
        settings = ExtractSettings(
            model_path=given.model_path,
            prepared_data=given.prepared_data,
            output_dir=Path(folder) / "store",
            dtype=given.dtype,
        )
        job = settle(settings)
        if given.way:
            answers = os.fdopen(os.dup(1), "w", buffering=1)
            os.dup2(2, 1)  # engines print there
            serve(WAYS[given.way](job), job, answers)
            return 0
        with started(argv, "extraction") as extraction, started(argv, "bare-prefill") as prefill:
            pairs = [pair for turn in range(given.rounds) for pair in measure(job, extraction, prefill, turn)]
            memory = [ask(way, "memory") for way in (extraction, prefill)]
    show(job, pairs, memory)
    return 0


def measure(job: Job, extraction: Process, prefill: Process, turn: int) -> Iterator[tuple[Unit, float, float]]:
    """Every unit through both ways: the unit, and the seconds each took."""
    for unit in job.plan.units:
        ways = [extraction, prefill] if (unit.index + turn) % 2 else [prefill, extraction]
        seconds = {}
        for way in ways:
            seconds[way.pid] = ask(way, unit.index)
            time.sleep(REST_SECONDS)
        yield unit, seconds[extraction.pid], seconds[prefill.pid]


Process = subprocess.Popen[str]


@contextmanager
def started(argv: list[str], way: str) -> Iterator[Process]:
    """One way in a process of its own, loaded; what it prints is shown only if it fails."""
    command = [sys.executable, "-m", "bench.extract", *argv, "--way", way]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            ask(process, "ready")
            yield process
        except EOFError:
            log.seek(0)
            sys.exit(f"measuring {way} failed:\n{log.read()[-4000:]}")
        finally:
            assert process.stdin
            process.stdin.close()
            process.wait(timeout=60)


def ask(process: Process, question: str | int) -> float:
    """A question to a way, and the number it answers.

    Raises:
        EOFError: it has ended.
    """
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(question) + "\n")
    process.stdin.flush()
    if not (answer := process.stdout.readline()):
        raise EOFError
    return float(json.loads(answer))


def serve(way: Callable[[Unit], Any], job: Job, answers: TextIO) -> None:
    """Answer questions until there are no more: the seconds a unit takes, or the bytes of memory at their peak."""
    for line in sys.stdin:
        question = json.loads(line)
        if question == "memory":
            answer: float = peak_memory()
        else:
            unit = job.plan.units[question if isinstance(question, int) else 0]
            started_at = time.perf_counter()
            way(unit)
            answer = time.perf_counter() - started_at
        answers.write(json.dumps(answer) + "\n")


def extraction(job: Job) -> Callable[[Unit], Any]:
    """The stage's path, from a unit's tokens to its shard's fsync."""
    import atexit

    from pipeline.extract.engines.protocol import start_engine
    from pipeline.extract.progress import RunProgress
    from pipeline.extract.run import extract_units
    from pipeline.store.writer import Store

    engine = start_engine("speculators", job.engine_options())
    atexit.register(engine.close)
    store = Store.open_for_run(job.settings.output_dir, job.identity())
    events = job.settings.output_dir / "events.jsonl"
    progress = RunProgress(sys.stderr, events, samples=job.samples, tokens=job.tokens, done_tokens=0)
    return lambda unit: extract_units(job, store, [unit], engine, progress)


def bare_prefill(job: Job) -> Callable[[Unit], Any]:
    """Stock vLLM with the engine settings of the generator, and nothing captured."""
    from pipeline.extract.engines.speculators import set_environment

    # The generator gives the KV cache a fifth of vLLM's 4 GiB.
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
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

    def prefill(unit: Unit) -> None:
        samples = read_unit(job.settings.prepared_data, unit)
        prompts = [TokensPrompt(prompt_token_ids=sample.input_ids) for sample in samples]
        llm.generate(prompts, one_token, use_tqdm=False)

    return prefill


WAYS: dict[str, Callable[[Job], Callable[[Unit], Any]]] = {"extraction": extraction, "bare-prefill": bare_prefill}


def peak_memory() -> int:
    """The peaks of this process and its children added up, in bytes; pages they share count in each.

    Read once, at the end, from what the kernel keeps: sampling it would take time from what is measured.
    """
    me = psutil.Process()
    status = [Path(f"/proc/{process.pid}/status").read_text() for process in [me, *me.children(recursive=True)]]
    peaks = [re.search(r"^VmHWM:\s+(\d+) kB", text, re.MULTILINE) for text in status]
    return sum(int(peak[1]) * 1024 for peak in peaks if peak)


def show(job: Job, pairs: list[tuple[Unit, float, float]], memory: list[float]) -> None:
    """The table, and the ratio's median, smallest and largest."""
    table = Table(title=f"{job.tokens:,} tokens in {job.samples} samples, {job.dtype}, {len(job.layer_ids)} layers")
    for column in ("unit", "tokens", "extraction, tok/s", "bare prefill, tok/s", "ratio"):
        table.add_column(column, justify="right")
    ratios = []
    for unit, extracting, bare in pairs:
        ratios.append(bare / extracting)
        rates = (f"{unit.tokens / seconds:,.0f}" for seconds in (extracting, bare))
        table.add_row(str(unit.index), f"{unit.tokens:,}", *rates, f"{ratios[-1]:.3f}")
    whole = sum(bare for *_, bare in pairs) / sum(extracting for _, extracting, _ in pairs)
    console = Console()
    console.print(table)
    console.print(
        f"extraction over bare prefill: median {statistics.median(ratios):.3f} ({min(ratios):.3f} to "
        f"{max(ratios):.3f}), all units together {whole:.3f}; memory at its peak {memory[0] / 2**20:,.0f} and "
        f"{memory[1] / 2**20:,.0f} MiB; {psutil.cpu_count()} cores",
        soft_wrap=True,
    )


if __name__ == "__main__":
    os.environ |= {"VLLM_LOGGING_LEVEL": "WARNING", "VLLM_SLEEP_WHEN_IDLE": "1"}
    sys.exit(main(sys.argv[1:]))
