"""Extraction against the engine's bare prefill: the same samples, engine settings and run.

    ./eyas bench.extract

*Extraction* is the stage's own path: each unit's tokens read, through the patched generator, its states committed to a
store while the next one runs. *Bare prefill* is stock vLLM's `LLM` given the same units with one token to generate.
Each has a process of its own, loaded and warmed up beforehand; then every unit goes through one and through the other,
the order changing every time, so that a machine whose speed drifts slows both. The one that waits is stopped (SIGSTOP),
since an engine's worker waits by spinning; a commit that overlaps the next unit's forward pass still does. Quoted is
the ratio of the speeds.
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import psutil
from rich.console import Console
from rich.table import Table

from pipeline.extract.job import Job, settle
from pipeline.extract.plan import Unit, read_unit
from pipeline.extract.settings import ExtractSettings


def main(argv: list[str]) -> int:
    """Measure and print the table."""
    flags = argparse.ArgumentParser(prog="python -m bench.extract", description=__doc__.split("\n")[0])
    flags.add_argument("--model-path", type=Path, required=True)
    flags.add_argument("--prepared-data", type=Path, required=True)
    flags.add_argument("--rounds", type=int, default=5, help="turns of both (default: %(default)s)")
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
            turns = [measure(job, extraction, prefill, turn) for turn in range(given.rounds)]
            memory = [ask(way, "memory") for way in (extraction, prefill)]
    show(job, turns, memory)
    return 0


def measure(job: Job, extraction: Process, prefill: Process, turn: int) -> tuple[float, float]:
    """All units through both ways: the seconds each took."""
    seconds = {extraction.pid: 0.0, prefill.pid: 0.0}
    for question in [*range(len(job.plan.units)), "end"]:
        turn += 1
        for way in [extraction, prefill] if turn % 2 else [prefill, extraction]:
            with alone(way, extraction, prefill):
                seconds[way.pid] += ask(way, question)
    return seconds[extraction.pid], seconds[prefill.pid]


Process = subprocess.Popen[str]


@contextmanager
def alone(way: Process, *ways: Process) -> Iterator[None]:
    """All the others stopped, with their children."""
    others = [psutil.Process(other.pid) for other in ways if other is not way]
    stopped = [process for other in others for process in [other, *other.children(recursive=True)]]
    for process in stopped:
        process.suspend()
    try:
        yield
    finally:
        for process in stopped:
            process.resume()


@contextmanager
def started(argv: list[str], way: str) -> Iterator[Process]:
    """One way in a process of its own, loaded; what it prints is shown only if it fails."""
    command = [sys.executable, "-m", "bench.extract", *argv, "--way", way]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            for question in (0, "end"):  # answered when all is loaded and warm
                ask(process, question)
            yield process
        except EOFError:
            log.seek(0)
            sys.exit(f"measuring {way} failed:\n{log.read()[-4000:]}")
        finally:
            assert process.stdin
            process.stdin.close()
            process.wait(timeout=60)


def ask(process: Process, question: int | str) -> float:
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


def serve(way: Callable[[Iterable[Unit]], Any], job: Job, answers: TextIO) -> None:
    """Answer until there are no more questions: a unit's number or "end", with its seconds; "memory", with the peak."""
    started_at = 0.0

    def answer(number: float) -> None:
        answers.write(json.dumps(number) + "\n")

    def units_asked_for(question: int | str) -> Iterator[Unit]:
        nonlocal started_at
        while isinstance(question, int):
            started_at = time.perf_counter()
            yield job.plan.units[question]
            answer(time.perf_counter() - started_at)
            question = next(questions)
        started_at = time.perf_counter()

    questions = map(json.loads, sys.stdin)
    for question in questions:
        if question == "memory":
            answer(peak_memory())
        else:
            way(units_asked_for(question))
            answer(time.perf_counter() - started_at)


def extraction(job: Job) -> Callable[[Iterable[Unit]], Any]:
    """The stage's path, from the first unit's tokens to the last shard's fsync."""
    import atexit
    from contextlib import ExitStack
    from functools import partial

    from pipeline.extract.engines.protocol import start_engine
    from pipeline.extract.progress import RunProgress
    from pipeline.extract.run import extract_units
    from pipeline.extract.supervise import Supervisor
    from pipeline.store.writer import Store

    store = Store.open_for_run(job.settings.output_dir, job.identity())
    progress = RunProgress(sys.stderr, job.settings.output_dir / "events.jsonl", tokens=job.tokens, done_tokens=0)
    start = partial(start_engine, "speculators", job.engine_options())
    until_exit = ExitStack()
    atexit.register(until_exit.close)
    engine = until_exit.enter_context(Supervisor(start, store.spec, job.settings.unit_deadline, progress))
    return lambda units: extract_units(job, units, engine)


def bare_prefill(job: Job) -> Callable[[Iterable[Unit]], Any]:
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

    def prefill(units: Iterable[Unit]) -> None:
        for unit in units:
            samples = read_unit(job.settings.prepared_data, unit)
            prompts = [TokensPrompt(prompt_token_ids=sample.input_ids) for sample in samples]
            llm.generate(prompts, one_token, use_tqdm=False)

    return prefill


WAYS: dict[str, Callable[[Job], Callable[[Iterable[Unit]], Any]]] = {
    "extraction": extraction,
    "bare-prefill": bare_prefill,
}


def peak_memory() -> int:
    """The peaks of this process and its children added up, in bytes; pages they share count in each.

    Read once, at the end, from what the kernel keeps: sampling it would take time from what is measured.
    """
    me = psutil.Process()
    status = [Path(f"/proc/{process.pid}/status").read_text() for process in [me, *me.children(recursive=True)]]
    peaks = [re.search(r"^VmHWM:\s+(\d+) kB", text, re.MULTILINE) for text in status]
    return sum(int(peak[1]) * 1024 for peak in peaks if peak)


def show(job: Job, turns: list[tuple[float, float]], memory: list[float]) -> None:
    """The table, and the ratio's median, smallest and largest."""
    units = len(job.plan.units)
    table = Table(title=f"{job.tokens:,} tokens in {units} units, {job.dtype}, {len(job.layer_ids)} layers")
    for column in ("turn", "extraction, tok/s", "bare prefill, tok/s", "ratio"):
        table.add_column(column, justify="right")
    ratios = []
    for number, (extracting, bare) in enumerate(turns, start=1):
        ratios.append(bare / extracting)
        table.add_row(
            str(number), *(f"{job.tokens / seconds:,.0f}" for seconds in (extracting, bare)), f"{ratios[-1]:.3f}"
        )
    whole = sum(bare for _, bare in turns) / sum(extracting for extracting, _ in turns)
    console = Console()
    console.print(table)
    console.print(
        f"extraction over bare prefill: median {statistics.median(ratios):.3f} ({min(ratios):.3f} to "
        f"{max(ratios):.3f}), all turns together {whole:.3f}; memory at its peak {memory[0] / 2**20:,.0f} and "
        f"{memory[1] / 2**20:,.0f} MiB; {psutil.cpu_count()} cores",
        soft_wrap=True,
    )


if __name__ == "__main__":
    os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"
    sys.exit(main(sys.argv[1:]))
