"""The map between the draft's vocabulary and the target's, as loaders take it on trust."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from pipeline.errors import ExportError


def check_vocabulary(tensors: Mapping[str, torch.Tensor], draft_vocab_size: int, vocab_size: int) -> None:
    """Refuse a map that would propose the wrong tokens.

    d2t holds differences (the target's id of draft id i is i + d2t[i]) and t2d says of each target id whether the draft
    has it; draft ids are in order of their target ids, because the lm_head's rows were taken by t2d.

    Args:
        tensors: with `d2t`, int64 `[draft_vocab_size]`, and `t2d`, bool `[vocab_size]`; with neither, the draft has
            the whole vocabulary.
        draft_vocab_size: tokens that the draft can propose.
        vocab_size: the target's.

    Raises:
        ExportError: says what is wrong.
    """
    there = [name for name in ("d2t", "t2d") if name in tensors]
    if draft_vocab_size == vocab_size:
        if there:
            raise ExportError(f"{there[0]} is there, and draft_vocab_size {draft_vocab_size} is the whole vocabulary")
        return
    if len(there) != 2:
        raise ExportError("d2t and t2d must both be there: without them draft tokens cannot be told to the target")
    d2t, t2d = tensors["d2t"], tensors["t2d"]
    wanted = {"d2t": (torch.int64, (draft_vocab_size,)), "t2d": (torch.bool, (vocab_size,))}
    for name, (dtype, shape) in wanted.items():
        if tensors[name].dtype != dtype or tuple(tensors[name].shape) != shape:
            raise ExportError(
                f"{name} is {tensors[name].dtype} {tuple(tensors[name].shape)} and must be {dtype} {shape}"
            )
    ids = d2t + torch.arange(draft_vocab_size)
    if int(ids.min()) < 0 or int(ids.max()) >= vocab_size:
        raise ExportError(
            f"d2t leads to target id {int(ids[ids.argmax()])}, and the target's are 0 to {vocab_size - 1}"
        )
    if not bool((ids.diff() > 0).all()):
        at = int((ids.diff() <= 0).nonzero()[0])
        raise ExportError(f"d2t is not in order: draft id {at} is target id {ids[at]}, and {at + 1} is {ids[at + 1]}")
    if not torch.equal(t2d.nonzero().flatten(), ids):
        raise ExportError("t2d is not true exactly at the target ids that d2t leads to")
