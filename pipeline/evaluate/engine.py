"""One engine at a time, each in a child process of its own: its memory is free when the next one starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import EngineError
from pipeline.evaluate.account import Answer, Counters
from pipeline.evaluate.prompts import Prompt
from pipeline.extract.quiet import last_line

MODULE = "pipeline.evaluate.serve"
_LEAVE = 20
"""seconds an engine has to end after it was told to"""
_WARM_UP_TOKENS = 16
_STEP_TOKENS = 2048
"""vLLM's own least size of a step where it does not know the device; longer prompts still go through in one step"""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """How every engine of a run is started; the same for all."""

    model: Path
    dtype: str
    tp_size: int
    batch_size: int
    num_speculative_tokens: int
    max_new_tokens: int
    max_model_len: int
    """longest prompt, answer and draft, and one more: no step is ever short of room for draft tokens"""
    trust_remote_code: bool
    accelerator: str
    """"cpu" or "cuda\""""


@dataclass(frozen=True, kw_only=True)
class Served:
    """What an engine did with the prompts."""

    answers: list[Answer]
    texts: list[str]
    counters: Counters
    seconds: float
    """from the first prompt given to the last answer finished"""
    load_seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Output tokens a second, prefills included."""
        return self.counters.generated / self.seconds

    @property
    def milliseconds_per_step(self) -> float:
        """Of the steps after the prefill, with prompts one at a time."""
        steps = self.counters.steps - len(self.answers)
        return 1000 * sum(answer.seconds for answer in self.answers) / steps if steps else 0.0


def serve(serving: Serving, draft: Path | None, prompts: Sequence[Prompt], log: Path) -> Served:
    """Answer the prompts greedily.

    Args:
        serving: how.
        draft: its folder; None for the target alone.
        prompts: in order.
        log: what the engine prints goes there.

    Raises:
        EngineError: the engine failed.
        KeyboardInterrupt: its processes are gone.
    """
    done = _run(_job(serving, draft, [prompt.token_ids for prompt in prompts], []), serving, log)
    counters = {**done["counters"]}
    counters["accepted_per_position"] = tuple(counters.get("accepted_per_position", ()))
    answers = [
        Answer(
            id=prompt.id,
            token_ids=answer["token_ids"],
            finish=answer["finish"],
            seconds=answer["seconds"],
            accepted=answer["accepted"] if draft is None else answer["accepted"] or [],
        )
        for prompt, answer in zip(prompts, done["answers"], strict=True)
    ]
    return Served(
        answers=answers,
        texts=[answer["text"] for answer in done["answers"]],
        counters=Counters(**counters),
        seconds=done["seconds"],
        load_seconds=done["load_seconds"],
    )


def largest_logits(serving: Serving, prefixes: list[list[int]], log: Path) -> list[dict[int, float]]:
    """The target's largest logits after each prefix, by token id.

    Raises:
        EngineError, KeyboardInterrupt: as `serve`.
    """
    done = _run(_job(serving, None, [], prefixes), serving, log)
    return [{int(token): value for token, value in row.items()} for row in done["logits"]]


def _job(serving: Serving, draft: Path | None, prompts: list[list[int]], prefixes: list[list[int]]) -> dict[str, Any]:
    return {
        "model": str(serving.model.absolute()),
        "draft": None if draft is None else str(draft.absolute()),
        "dtype": serving.dtype,
        "tp_size": serving.tp_size,
        "batch_size": serving.batch_size,
        "num_speculative_tokens": serving.num_speculative_tokens,
        "max_new_tokens": serving.max_new_tokens,
        "warm_up_tokens": min(_WARM_UP_TOKENS, serving.max_new_tokens),
        "max_model_len": serving.max_model_len,
        "max_num_batched_tokens": max(_STEP_TOKENS, serving.max_model_len),
        "trust_remote_code": serving.trust_remote_code,
        "eager": serving.accelerator == "cpu",
        "prompts": prompts,
        "prefixes": prefixes,
        "parent": os.getpid(),
    }


def _run(job: Mapping[str, Any], serving: Serving, log: Path) -> dict[str, Any]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="eyas-evaluate-") as folder, log.open("wb") as sink:
        order, result = Path(folder) / "job.json", Path(folder) / "result.json"
        order.write_text(json.dumps(job), "utf-8")
        command = [sys.executable, "-m", MODULE, str(order), str(result)]
        code = _to_its_end(command, environment(serving), sink)
        if code or not result.exists():
            what = "the draft's engine" if job["draft"] else "the target's engine"
            told = last_line(log)
            raise EngineError(f"{what} ended with code {code}{f' [{told}]' if told else ''}; its log is {log}")
        done: dict[str, Any] = json.loads(result.read_bytes())
    return done


def environment(serving: Serving) -> dict[str, str]:
    """The child's environment; what the user has set stays.

    On a CPU one process computes with all the cores it may use. vLLM's own way, three processes of which one waits for
    work without sleeping, keeps a core for the waiting (utils/ompmultiprocessing.py), half of a machine of two.
    """
    made = {"PYTHONHASHSEED": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if serving.accelerator == "cpu":
        made["VLLM_CPU_KVCACHE_SPACE"] = "1"
        if serving.tp_size == 1:
            made["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
            made["OMP_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))
    return made | os.environ


def _to_its_end(command: list[str], variables: dict[str, str], sink: Any) -> int:
    """Run the engine's process; whatever ends this one ends it and those it started."""
    with _signals_interrupt():
        process = subprocess.Popen(
            command, env=variables, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        )
        try:
            return process.wait()
        finally:
            _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the engine's process group: told first, then killed."""
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(_LEAVE)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does; and so does SIGINT where it was ignored, as in a shell's background job."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before: list[Any] = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
