"""What the target itself says next, from the states that it left in a store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch.nn.functional import rms_norm

from pipeline.errors import InputError

_ROWS = 256
"""states turned into logits at once: 168 MB of logits in float32 for a vocabulary of 163,840"""

UNKNOWN = -1
"""in place of a token that the store does not tell; no draft token equals it"""


@dataclass(frozen=True)
class Answer:
    """A turn that the target itself wrote: tokens `start` to `end` - 1 of its sample, the end of turn included."""

    start: int
    end: int


def answers(loss_mask: torch.Tensor) -> Iterator[Answer]:
    """The turns of a sample that are the target's own: runs of ones in its loss mask.

    Args:
        loss_mask: 0 or 1 `[rows]`. A run that begins at row 0 has no prompt before it and is left out: no server
            answers an empty prompt.
    """
    mask = loss_mask.bool().cpu()
    edges = torch.nonzero(mask[1:] != mask[:-1]).flatten() + 1
    for start, end in pairwise([0, *edges.tolist(), len(mask)]):
        if start and mask[start]:
            yield Answer(start, end)


class TargetHead:
    """The target's final norm and its lm_head: from a last state to the token that follows it, greedily."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        """Read the two tensors (of a target with tied embeddings, those).

        Args:
            folder: the target's.
            device: where to compute.

        Raises:
            InputError: they are not there, or not in safetensors.
        """
        from loguru import logger
        from speculators.models.utils import GEMMA_STYLE_FINAL_NORM_MODEL_TYPES
        from speculators.utils.loading import load_model_layers

        logger.disable("speculators.utils.loading")  # it warns of an lm_head that tied targets do not have
        names = ["model.norm.weight", "lm_head.weight", "embed_tokens.weight"]
        try:
            there = load_model_layers(names, str(folder))
            head = there.get("lm_head.weight", there["embed_tokens.weight"])
            self._norm, self._head = there["model.norm.weight"].to(device).float(), head.to(device).float()
        except (OSError, KeyError, ValueError) as error:
            raise InputError(f"cannot read the final norm and the lm_head of the target {folder}: {error}") from error
        config = json.loads((folder / "config.json").read_bytes())
        text = config.get("text_config") or config
        self._eps = float(text["rms_norm_eps"])
        if text.get("model_type") in GEMMA_STYLE_FINAL_NORM_MODEL_TYPES:  # their gain is one more than their weight
            self._norm = self._norm + 1

    def next_tokens(self, states: torch.Tensor) -> torch.Tensor:
        """The most likely next token of each state.

        Args:
            states: the states after the last decoder layer, before the final norm, `[rows, hidden]`.

        Returns:
            int64 `[rows]`.
        """
        normed = rms_norm(states.to(self._norm), self._norm.shape, self._norm, self._eps)
        return torch.cat([(rows @ self._head.T).argmax(-1) for rows in normed.split(_ROWS)])


def tokens_to_come(input_ids: torch.Tensor, said: torch.Tensor, answer: Answer, beyond: int) -> torch.Tensor:
    """The tokens that serving would have accepted: the answer's own, and as far as known those after its end.

    A server does not look at the end of an answer while it compares: its last round may count draft tokens that lie
    after it, if the target would have gone on with them (vLLM 0.32, `Scheduler.update_from_output`: the accepted are
    counted before the request is stopped). The first token after the end is known from the state of the last one; a
    further one only if the sample itself goes on with what the target would have said.

    Args:
        input_ids: of the sample, `[rows]`.
        said: the target's next token after each row from one before the answer on, as many as there are.
        answer: which turn.
        beyond: tokens after the end to tell.

    Returns:
        int64 `[rows + beyond + 1]`, by position in the sample; `UNKNOWN` where nobody knows.
    """
    rows = len(input_ids)
    truth = torch.full((rows + beyond + 1,), UNKNOWN, dtype=torch.int64, device=input_ids.device)
    truth[: answer.end] = input_ids[: answer.end]
    for position in range(answer.end, min(answer.end + beyond, rows + 1)):
        truth[position] = said[position - answer.start]
        if position == rows or input_ids[position] != truth[position]:
            break
    return truth
