"""The target in vLLM, driven step by step in this process.

vLLM's own engine process takes requests as they come in, so that which of them share a step depends on timing. Here
nothing comes in but between two steps: the same unit is computed in the same steps every time.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from pipeline.errors import EngineError
from pipeline.regenerate.generator import Answer, Request
from pipeline.regenerate.job import Job

STEP_TOKENS = 8192
"""Most tokens in a step. vLLM's own default depends on the GPU's memory, and a unit's steps must not."""
MODALITIES = ("image", "video", "audio", "vision_chunk")
"""all refused: text only"""
CPU_KV_CACHE_GIB = "4"
"""Room for keys and values on a CPU; unset, vLLM would claim half the memory."""


class VllmGenerator:
    """Owns an `LLMEngine`."""

    def __init__(self, job: Job, stop_token: int | None) -> None:
        """Load the target.

        Args:
            job: the run.
            stop_token: ends an answer, beside those that the checkpoint itself names.

        Raises:
            EngineError: with the first line of what vLLM said.
        """
        settings = self._settings = job.settings
        self._stop = [] if stop_token is None else [stop_token]
        _set_environment()
        with _failures_told("the engine did not start"):
            # vLLM logs and reads the environment as it is imported.
            from vllm import EngineArgs, LLMEngine

            on_cpu = not torch.cuda.is_available()
            self._engine: Any = LLMEngine.from_engine_args(
                EngineArgs(
                    model=str(job.target.folder),
                    dtype=job.dtype,
                    max_model_len=job.max_model_len,
                    max_num_seqs=settings.batch_size,
                    max_num_batched_tokens=STEP_TOKENS,
                    tensor_parallel_size=settings.tp_size,
                    gpu_memory_utilization=settings.gpu_memory_utilization,
                    trust_remote_code=settings.trust_remote_code,
                    limit_mm_per_prompt=dict.fromkeys(MODALITIES, 0),
                    enable_prefix_caching=True,
                    async_scheduling=False,
                    disable_log_stats=True,
                    enforce_eager=on_cpu,
                )
            )

    def begin_unit(self) -> None:
        """See `Generator.begin_unit`: prefixes that earlier units left in the cache would change the steps."""
        with _failures_told("the engine failed"):
            if not self._engine.reset_prefix_cache():
                raise RuntimeError("the prefix cache is in use with nothing in flight")

    def submit(self, request: Request) -> None:
        """See `Generator.submit`."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        settings = self._settings
        sampling = SamplingParams(
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
            seed=request.seed,
            max_tokens=request.max_new_tokens,
            stop_token_ids=self._stop,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        with _failures_told(f"the engine refused {request.name}"):
            self._engine.add_request(request.name, {"prompt_token_ids": request.prompt}, sampling)

    def advance(self) -> Sequence[Answer]:
        """See `Generator.advance`; one step of vLLM."""
        with _failures_told("the engine failed"):
            if not self._engine.has_unfinished_requests():
                raise RuntimeError("it has nothing in flight, and answers are missing")
            return [_answer(output) for output in self._engine.step() if output.finished]

    def close(self) -> None:
        """See `Generator.close`."""
        if engine := self.__dict__.pop("_engine", None):
            engine.engine_core.shutdown()
            del engine
            gc.collect()


def _answer(output: Any) -> Answer:
    (completion,) = output.outputs
    if completion.finish_reason not in {"stop", "length"}:
        raise RuntimeError(f"{output.request_id} ended as {completion.finish_reason!r}")
    return Answer(output.request_id, list(completion.token_ids), completion.finish_reason == "stop")


def _set_environment() -> None:
    """What vLLM reads from the environment only, before it is imported; but for the first, what the user set stays."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if not torch.cuda.is_available():
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", CPU_KV_CACHE_GIB)
        # vLLM has no multi-head latent attention on CPUs; DeepSeek's attention is then computed in its plain form.
        os.environ.setdefault("VLLM_MLA_DISABLE", "1")


@contextmanager
def _failures_told(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # vLLM raises bare Exception, its dependencies anything
        lines = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        raise EngineError(f"{what}: {reason}") from error
