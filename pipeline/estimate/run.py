"""A draft over a held-out store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import nan, sqrt
from pathlib import Path

import torch

from pipeline.errors import NoSamplesError
from pipeline.estimate.truth import TargetHead, answers, tokens_to_come
from pipeline.estimate.unroll import proposals
from pipeline.estimate.walk import Counts
from pipeline.export.draft import Draft
from pipeline.store.dataset import HiddenStateDataset


@dataclass
class Estimate:
    """What was found."""

    counts: Counts
    samples: int = 0
    """with at least one answer"""
    answers: int = 0
    greedy: int = 0
    """answers' tokens that are the target's most likely ones"""
    by_sample: list[tuple[int, int]] = field(default_factory=list)
    """of each sample with an answer: draft tokens accepted, and drafts"""

    @property
    def deviations(self) -> list[float]:
        """How much each sample moves the acceptance length; they sum to 0.

        Acceptance length is a ratio of two sums over samples, to whose error each adds (accepted - ratio * drafts) /
        all drafts (Cochran, Sampling Techniques, section 6.4).
        """
        ratio, drafts = self.counts.acceptance_length - 1, self.counts.drafts
        return [(accepted - ratio * asked) / drafts for accepted, asked in self.by_sample]

    @property
    def standard_error(self) -> float:
        """Of the acceptance length, over samples as if drawn at random; nan of one."""
        return standard_error(self.deviations)

    @property
    def greedy_share(self) -> float:
        """1, near-ties aside, if the answers are the target's own and greedy: what the acceptance length is about."""
        return self.greedy / self.counts.tokens


def standard_error(deviations: Sequence[float]) -> float:
    """Standard error of a figure from how much each of at least two samples moves it."""
    count = len(deviations)
    return sqrt(count / (count - 1) * sum(one * one for one in deviations)) if count > 1 else nan


def estimate(
    dataset: HiddenStateDataset, draft: Draft, target: Path, steps: int, progress: Callable[[int], None]
) -> Estimate:
    """Count what a server would.

    Args:
        dataset: the held-out store; fits draft and target.
        draft: the checkpoint.
        target: the target's folder.
        steps: tokens a round.
        progress: told how many samples are done.

    Raises:
        NoSamplesError: no answer is long enough for a round.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = draft.model().to(device)
    head, to_target = TargetHead(target, device), draft.to_target()
    inputs = list(dataset.index.manifest["layer_ids"]["input"])
    columns, last = [inputs.index(layer) for layer in draft.layer_ids], inputs.index(max(inputs))
    found = Estimate(Counts(steps))
    for number, sample in enumerate(dataset.in_order(range(len(dataset)))):
        progress(number)
        if not (turns := list(answers(sample["loss_mask"]))):
            continue
        ids, states = sample["input_ids"].to(device), sample["hidden_states"].to(device)
        drafted = proposals(model, states[:, columns].flatten(1).float(), ids, steps, to_target)
        found.samples += 1
        before = found.counts.accepted, found.counts.drafts
        for turn in turns:
            said = head.next_tokens(states[turn.start - 1 : turn.end + steps, last])
            found.answers += 1
            found.greedy += int((said[: turn.end - turn.start] == ids[turn.start : turn.end]).sum())
            found.counts.add(drafted, tokens_to_come(ids, said, turn, steps), turn)
        found.by_sample.append((found.counts.accepted - before[0], found.counts.drafts - before[1]))
    if not found.counts.drafts:
        raise NoSamplesError(
            f"no answer in {dataset.index.spec.folder} has three tokens, so that a draft could be asked: extract others"
        )
    return found
