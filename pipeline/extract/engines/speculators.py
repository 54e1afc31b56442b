"""The engine for the work: speculators' generator, patched for this vLLM, one `generate()` a unit.

The settings that the plan fixes are given to the engine as its batch limits, so that a unit within them is one
forward pass and its bits depend on nothing but the unit.
"""

from __future__ import annotations

import gc
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from pipeline.errors import EngineError
from pipeline.extract.engines.protocol import EngineOptions
from pipeline.store.committer import Committed
from pipeline.store.records import OrderedSample, UnitOrder
from pipeline.store.spec import StoreSpec

CPU_KV_CACHE_GIB = "4"
"""Room that vLLM is told of on a CPU, of which the generator takes a fifth; unset, vLLM would claim half the memory."""


class SpeculatorsEngine:
    """Owns a `VllmHiddenStatesGenerator` and its worker processes."""

    def __init__(self, options: EngineOptions) -> None:
        """Start the workers and load the target.

        Raises:
            EngineError: with the first line of what vLLM or speculators said.
        """
        set_environment(options)
        self._unit_rows = max(options.token_budget, options.max_seq_len)
        # Both log and read the environment as they are imported.
        from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator

        class StoringGenerator(VllmHiddenStatesGenerator):
            worker_extension_cls = "pipeline.extract.engines.worker.StoringWorkerExtension"

        try:
            self._generator = StoringGenerator(
                model_path=str(options.target.folder),
                layer_ids=list(options.layer_ids),
                # vLLM wants room for one token after the prompt.
                max_model_len=options.max_seq_len + 1,
                dtype=options.dtype,
                gpu_memory_utilization=options.gpu_memory_utilization,
                max_num_batched_tokens=max(options.token_budget, options.max_seq_len + 1),
                max_num_seqs=options.batch_size,
                tensor_parallel_size=options.tp_size,
                trust_remote_code=options.trust_remote_code,
            )
        except Exception as error:  # vLLM raises bare Exception, its dependencies anything
            raise EngineError(f"the engine did not start: {_first_line(error)}") from error
        # The workers have the cores; what this process computes (stacking, norms) must not spin on them in parallel.
        torch.set_num_threads(1)
        for queue in self._generator.executor.response_mqs:
            queue._read_spin_timer = _Nap()

    @property
    def alive(self) -> bool:
        """See `Engine.alive`."""
        return not self._generator.executor.is_failed

    def extract(self, samples: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """See `Engine.extract`; the states come through the engine's RPC channel, for callers that want few."""
        with _failures_told():
            results = self._generator.generate([list(sample) for sample in samples])
            return [torch.stack(result["hidden_states"], dim=1) for result in results]

    def write_to(self, spec: StoreSpec) -> None:
        """See `Engine.write_to`; the writer is the worker of tensor-parallel rank 0."""
        with _failures_told():
            self._call("open_store", spec, self._unit_rows, sorted(os.sched_getaffinity(0)))

    def capture(self, order: UnitOrder, passes: Sequence[int]) -> Committed:
        """See `Engine.capture`."""
        with self._unit(order, passes):
            committed: Committed = self._call("end_unit")
        return committed

    def check(self, samples: Sequence[Sequence[int]]) -> None:
        """See `Engine.check`."""
        order = UnitOrder(-1, tuple(OrderedSample("", 0, list(sample), []) for sample in samples))
        with self._unit(order, [len(samples)]):
            self._call("drop_unit")

    def finish(self) -> Committed:
        """See `Engine.finish`."""
        with _failures_told():
            done: Committed = self._call("finish_units")
        return done

    def kill(self) -> None:
        """See `Engine.kill`."""
        for worker in self._generator.executor.workers:
            worker.proc.kill()

    def close(self) -> None:
        """End the workers; they get 4 s to leave by themselves, then SIGTERM, then SIGKILL (vLLM's own sequence)."""
        if generator := self.__dict__.pop("_generator", None):
            generator.executor.shutdown()
            del generator
            gc.collect()

    @contextmanager
    def _unit(self, order: UnitOrder, passes: Sequence[int]) -> Iterator[None]:
        """A unit begun and computed; given up again where that, or what is then done with it, fails."""
        with _failures_told():
            try:
                self._call("begin_unit", order)
                self._prefill([sample.input_ids for sample in order.samples], passes)
                yield
            except TimeoutError:
                self.kill()  # its answer would be taken for that of the next call
                raise
            except Exception:
                if self.alive:
                    self._call("drop_unit")
                raise

    def _prefill(self, samples: Sequence[list[int]], passes: Sequence[int]) -> None:
        """Compute samples in passes, their rows placed one after the other."""
        start = row = 0
        for count in passes:
            part = samples[start : start + count]
            start += count
            starts = list(itertools.accumulate(map(len, part), initial=row))
            row = starts.pop()
            self._call("place_rows", list(zip(self._generator.add_requests(part), starts, strict=True)))
            self._generator.prefill()

    def _call(self, method: str, *arguments: Any) -> Any:
        return self._generator.executor.collective_rpc(method, args=arguments, unique_reply_rank=0)


class _Nap:
    """How to wait for a worker's answer, in place of vLLM's `SpinTimer`.

    That one keeps a core busy, and on a CPU it is one that the worker computes on. Naps double up to the longest: quick
    answers are fetched at once, and during a forward pass, which takes seconds, hardly anything disturbs it.
    """

    SHORTEST = 0.000_2
    LONGEST = 0.02

    def __init__(self) -> None:
        self._seconds = self.SHORTEST

    def record_activity(self) -> None:
        """Called when an answer came."""
        self._seconds = self.SHORTEST

    def spin(self) -> None:
        """Called until one comes."""
        time.sleep(self._seconds)
        self._seconds = min(2 * self._seconds, self.LONGEST)


def set_environment(options: EngineOptions) -> None:
    """Set what vLLM reads from the environment only, before it is imported; a value the user set stays."""
    if options.max_seq_len == options.target.max_positions:
        # The one position more that is asked for above is never used.
        os.environ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
    # The run's own deadline comes first.
    os.environ.setdefault("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", str(2 * options.unit_deadline))
    if torch.cuda.is_available():
        return
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", CPU_KV_CACHE_GIB)
    # vLLM has no multi-head latent attention on CPUs; DeepSeek's attention is then computed in its plain form.
    os.environ.setdefault("VLLM_MLA_DISABLE", "1")
    if options.tp_size > 1:
        os.environ.setdefault(
            "VLLM_CPU_OMP_THREADS_BIND", _shared_out(sorted(os.sched_getaffinity(0)), options.tp_size)
        )


def _shared_out(cpus: Sequence[int], ranks: int) -> str:
    """CPUs for each rank in vLLM's notation, "0,1|2,3"; ranks share CPUs where there are fewer than ranks."""
    share = max(len(cpus) // ranks, 1)
    starts = [rank * share % len(cpus) for rank in range(ranks)]
    return "|".join(",".join(str(cpu) for cpu in cpus[start : start + share]) for start in starts)


@contextmanager
def _failures_told() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, TimeoutError, ValueError) as error:
        raise EngineError(f"the engine failed on a unit: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
