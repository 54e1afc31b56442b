"""The path of states that speculators 0.3.0 ships: through vLLM's RPC channel, then one `torch.save` a sample.

A worker process answers each request with host tensors, one a layer, over vLLM's own `MessageQueue`, set up as its
`MultiprocExecutor` does. The parent cuts them into samples, which it copies, as the generator does, and saves in four
threads while it asks for the next ones, as speculators' script data_generation_offline.py does. Its worker's copy out
of the device is left out, and nothing is synced to the disk: both are to this path's advantage.
"""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

STEPS = 4
IO_WORKERS = 4
"""MAX_IO_WORKERS of speculators' script"""
CHUNK_BYTES = 16 << 20
"""what vLLM's VLLM_MQ_MAX_CHUNK_BYTES_MB is when not set"""


def rate(folder: Path, shape: tuple[int, int, int], sample_rows: int) -> float:
    """Bytes a second, from the first request to the last file written; the files are deleted afterwards.

    Args:
        folder: where to write.
        shape: rows, layers and hidden size of a step's states.
        sample_rows: of each sample.
    """
    rows, layers, hidden = shape
    with worker(shape) as (requests, replies):
        save_steps(folder / "first", requests, replies, sample_rows, steps=1)  # queues and heaps are there after it
        started = time.perf_counter()
        save_steps(folder / "shipped", requests, replies, sample_rows, steps=STEPS)
        return STEPS * rows * layers * hidden * torch.bfloat16.itemsize / (time.perf_counter() - started)


def save_steps(folder: Path, requests: Any, replies: Any, sample_rows: int, steps: int) -> None:
    """The script's loop over batches."""
    folder.mkdir()
    saved = list[Future[None]]()
    with ThreadPoolExecutor(IO_WORKERS) as pool:
        for _ in range(steps):
            requests.enqueue("states")
            for sample in samples(replies.dequeue(), sample_rows):
                saved.append(pool.submit(torch.save, sample, folder / f"data_{len(saved)}.pt"))
    for future in saved:
        future.result()
    shutil.rmtree(folder)


def samples(states: list[torch.Tensor], rows: int) -> Iterator[dict[str, Any]]:
    """What the generator makes of a reply, and the script of that."""
    for start in range(0, len(states[0]), rows):
        yield {
            "input_ids": torch.arange(rows),
            "hidden_states": [layer[start : start + rows].clone().contiguous() for layer in states],
            "loss_mask": torch.ones(rows, dtype=torch.int64),
        }


@contextmanager
def worker(shape: tuple[int, int, int]) -> Iterator[tuple[Any, Any]]:
    """A worker process, and the queues of requests to it and of its replies."""
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    context = multiprocessing.get_context("spawn")
    requests = MessageQueue(1, 1, max_chunk_bytes=CHUNK_BYTES)
    pipe, its_pipe = context.Pipe()
    process = context.Process(target=answer, args=(its_pipe, requests.export_handle(), shape), daemon=True)
    process.start()
    its_pipe.close()
    replies = MessageQueue.create_from_handle(pipe.recv(), 0)
    requests.wait_until_ready()
    replies.wait_until_ready()
    try:
        yield requests, replies
    finally:
        requests.enqueue("end")
        process.join()


def answer(pipe: Connection, handle: Any, shape: tuple[int, int, int]) -> None:
    """The worker: the same states for every request, until there are no more."""
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    rows, layers, hidden = shape
    states = [torch.randn(rows, hidden).to(torch.bfloat16) for _ in range(layers)]
    requests = MessageQueue.create_from_handle(handle, 0)
    replies = MessageQueue(1, 1)
    pipe.send(replies.export_handle())
    requests.wait_until_ready()
    replies.wait_until_ready()
    while requests.dequeue() != "end":
        replies.enqueue(states)
