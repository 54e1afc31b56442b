"""What `--dry-run` prints: everything that is decided, and what it will take."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from rich.filesize import decimal
from speculators.models.eagle3 import Eagle3DraftModel

from pipeline.train.job import Job

_F32 = 4


def lines(job: Job) -> Iterator[str]:
    """The plan, a line a fact."""
    settings, report = job.settings, job.vocabulary_report
    batches = job.batches()
    trained, frozen = parameters(job)
    hidden, words = job.manifest["hidden_size"], job.manifest["vocab_size"]
    yield f"target      {settings.model_path} (hidden {hidden}, {words:,} tokens)"
    yield f"layers      inputs {' '.join(map(str, job.layers))}; targets from the state after the last layer"
    for name, numbers in (("training", job.training), ("validation", job.validation)):
        yield f"{name:<11} {len(numbers):,} samples, {job.tokens(numbers):,} tokens"
    yield (
        f"steps       {job.steps:,}, {len(batches.steps(0)):,} in the first of {settings.epochs} epochs, of at most "
        f"{settings.batch_tokens:,} tokens over {settings.nproc} process(es)"
    )
    curve = ", ".join(f"{int(size):,}: {share:.2%}" for size, share in report["curve"].items())
    yield f"vocabulary  {report['size']:,} tokens cover {report['covered']:.2%} of trained tokens ({curve})"
    yield f"parameters  {trained:,} trained, {frozen:,} frozen"
    yield f"computes    on {job.device} in {str(job.dtype).removeprefix('torch.')}, attention {job.attention}"
    yield f"memory      about {decimal(memory(job))} a process"
    yield f"disk        about {decimal(disk(job))} for {settings.keep + 2} checkpoints"


def parameters(job: Job) -> tuple[int, int]:
    """How many weights the draft trains, and how many it only uses."""
    with torch.device("meta"):
        draft = Eagle3DraftModel(job.config)
    draft.lm_head.weight.requires_grad_(job.settings.train_lm_head)
    sizes = [(weight.requires_grad, weight.numel()) for weight in draft.parameters()]
    return sum(size for trains, size in sizes if trains), sum(size for trains, size in sizes if not trains)


def disk(job: Job) -> int:
    """Bytes of the checkpoints kept: weights, and two states of AdamW a weight that trains (Muon has one)."""
    trained, frozen = parameters(job)
    own = trained + frozen - job.vocabulary.size * job.manifest["hidden_size"]  # the target's output layer is not saved
    return (job.settings.keep + 2) * _F32 * (own + 2 * trained)


def memory(job: Job) -> int:
    """Bytes of weights, gradients, optimizer and one step's activations, as estimated.

    Activations: each step of training-time test keeps, for each row, its logits and their softmax and the target's
    in float32 (once, in the kernels for GPUs) and about 34 states of the draft's width for each of its layers.
    """
    trained, frozen = parameters(job)
    rows = -(-job.settings.batch_tokens // job.settings.nproc)
    width, words, steps = job.manifest["hidden_size"], job.vocabulary.size, job.settings.ttt_steps
    size = job.dtype.itemsize
    logits = (2 * size if job.device == "cuda" else 4 * _F32) * words
    states = 34 * size * width * job.settings.draft_layers
    return _F32 * (4 * trained + frozen) + rows * steps * (logits + states)
