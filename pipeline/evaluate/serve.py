"""The child process: one engine, one job, one result.

`python -m pipeline.evaluate.serve JOB RESULT`: JOB is JSON as `pipeline.evaluate.engine` writes it. Either the prompts
are answered and counted, or the target's logits after given prefixes are looked up.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pipeline.store.durable import write_synced

Job = dict[str, Any]
_LOOKED_UP = 20
"""logits a prefix: vLLM's own limit (`max_logprobs`)"""


def main(argv: list[str]) -> int:
    """Run a job.

    Args:
        argv: the job's file, and the file for its result.

    Returns:
        0; whatever goes wrong is a traceback, in the engine's log.
    """
    job = json.loads(Path(argv[0]).read_bytes())
    _end_with(job["parent"])
    started = time.perf_counter()
    engine = _engine(job)
    loaded = time.perf_counter() - started
    done = _logits(engine, job["prefixes"]) if job["prefixes"] else _measure(engine, job)
    write_synced(Path(argv[1]), [json.dumps({**done, "load_seconds": loaded}).encode()])
    return 0


def _end_with(parent: int) -> None:
    """Have the kernel end this process when its parent is gone, however that ended: prctl(PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("the stage is gone")


def _engine(job: Job) -> Any:
    from vllm import LLM

    options: Job = {
        "model": job["model"],
        "dtype": job["dtype"],
        "tensor_parallel_size": job["tp_size"],
        "trust_remote_code": job["trust_remote_code"],
        "max_model_len": job["max_model_len"],
        "max_num_seqs": job["batch_size"],
        # A prefill in one step, so that engine steps can be counted.
        "max_num_batched_tokens": job["max_num_batched_tokens"],
        "enforce_eager": job["eager"],
        "disable_log_stats": False,
        "seed": 0,
    }
    if job["draft"]:
        options["speculative_config"] = {
            "method": "eagle3",
            "model": job["draft"],
            "num_speculative_tokens": job["num_speculative_tokens"],
        }
        options["per_request_spec_decode_metrics"] = "detailed"
    if job["prefixes"]:
        options["logprobs_mode"] = "raw_logits"
    return LLM(**options)


def _measure(engine: Any, job: Job) -> Job:
    """Answer every prompt greedily, `max_num_seqs` at a time; a warm-up before is in no figure."""
    _generate(engine, job["prompts"][:1], job["warm_up_tokens"])
    engine.reset_prefix_cache()
    before = _counters(engine)
    started = time.perf_counter()
    outputs = _generate(engine, job["prompts"], job["max_new_tokens"])
    seconds = time.perf_counter() - started
    after = _counters(engine)
    return {
        "seconds": seconds,
        "counters": {name: _minus(value, before.get(name)) for name, value in after.items()},
        "answers": [_answer(output) for output in outputs],
    }


def _generate(engine: Any, prompts: list[list[int]], tokens: int, **sampling: Any) -> list[Any]:
    from vllm import SamplingParams

    given = [{"prompt_token_ids": prompt} for prompt in prompts]
    return list(engine.generate(given, SamplingParams(temperature=0, max_tokens=tokens, **sampling), use_tqdm=False))


def _answer(output: Any) -> Job:
    (answer,), times = output.outputs, output.metrics
    steps = answer.spec_decode_metrics
    return {
        "token_ids": list(answer.token_ids),
        "text": answer.text,
        "finish": answer.finish_reason,
        "seconds": times.last_token_ts - times.first_token_ts,
        "accepted": None if steps is None else list(steps.per_step_accepted),
    }


_NAMES = {
    "vllm:iteration_tokens_total": "steps",
    "vllm:generation_tokens": "generated",
    "vllm:spec_decode_num_drafts": "drafts",
    "vllm:spec_decode_num_draft_tokens": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens": "accepted",
    "vllm:spec_decode_num_accepted_tokens_per_pos": "accepted_per_position",
}
"""counters of vllm/v1/metrics/loggers.py and vllm/v1/spec_decode/metrics.py; the first is a histogram that takes one
value an engine step, so its count is the steps"""


def _counters(engine: Any) -> Job:
    found: Job = {}
    for metric in engine.get_metrics():
        if name := _NAMES.get(metric.name):
            value = getattr(metric, "value", None)
            values = getattr(metric, "values", None)
            found[name] = values if values is not None else metric.count if value is None else value
    return found


def _minus(after: Any, before: Any) -> Any:
    if isinstance(after, list):
        return [one - other for one, other in zip(after, before or [0] * len(after), strict=True)]
    return after - (before or 0)


def _logits(engine: Any, prefixes: list[list[int]]) -> Job:
    """The target's largest logits for the token after each prefix."""
    outputs = _generate(engine, prefixes, 1, logprobs=_LOOKED_UP)
    return {
        "logits": [
            {token: entry.logprob for token, entry in output.outputs[0].logprobs[0].items()} for output in outputs
        ]
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
