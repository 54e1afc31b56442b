"""What is the matter with a sample whose states are wrong: the mistakes that extraction is known to make, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import torch

from pipeline.verify.measure import Checked, row_errors, row_scales, runs
from pipeline.verify.reference import ReferenceModel

_TRIED_ROWS = 64
"""wrong rows that are looked for elsewhere, spread over the sample; each is compared with every row of a candidate"""
_NEIGHBOURS = 2
"""layers off by so many are looked for"""


def diagnose(  # noqa: PLR0913 - keyword-only
    sample: Checked,
    *,
    limit: torch.Tensor,
    scale_limit: float,
    layer_ids: Sequence[int],
    model: ReferenceModel,
    others: Iterable[Checked],
) -> str:
    """Name the mistake in a sample.

    Args:
        sample: one that is wrong.
        limit: row errors of right states are below it, `[layers]`.
        scale_limit: median factors of right states differ from 1 by less.
        layer_ids: the store's output ids.
        model: the reference in float32.
        others: samples whose states may be in the wrong place; computed as they are asked for.

    Returns:
        A few words, or none if it is no known mistake.
    """
    return (
        scaled(sample, limit, scale_limit, layer_ids)
        or _final_norm(sample, limit, layer_ids, model)
        or _other_layers(sample, limit, layer_ids, model)
        or _other_rows(sample, limit, others)
    )


def wrong_rows(sample: Checked, limit: torch.Tensor) -> torch.Tensor:
    """Numbers of the rows that are beyond the limit in some layer."""
    return (row_errors(sample.stored, sample.truth) > limit).any(dim=1).nonzero().flatten()


def describe_rows(sample: Checked, limit: torch.Tensor) -> str:
    """The wrong rows in words."""
    rows = wrong_rows(sample, limit)
    if len(rows) in {0, len(sample.truth)}:
        return "all rows are"
    if len(rows) == 1:
        return f"row {int(rows)} (1 of {len(sample.truth)}) is"
    spans = [f"{first}" if first == last else f"{first} to {last}" for first, last in runs(rows)]
    more = f" and {len(spans) - 3} more runs" if len(spans) > 3 else ""
    return f"rows {', '.join(spans[:3])}{more} ({len(rows)} of {len(sample.truth)}) are"


def places(sample: Checked, rows: torch.Tensor, candidate: Checked, limit: torch.Tensor) -> list[int | None]:
    """Where a sample's rows are to be found in a candidate's truth, other than in their own place.

    Half of the layers within the limit are enough: in the rest, rounding may have sent the row to other experts.

    Args:
        sample: whose states are looked at.
        rows: numbers of some of its rows.
        candidate: where they are looked for; may be the sample itself.
        limit: row errors of right states are below it, `[layers]`.

    Returns:
        A row number of the candidate for every row; None where there is none.
    """
    size = torch.linalg.vector_norm(candidate.truth, dim=-1)
    found: list[int | None] = []
    for row in rows.tolist():
        distance = torch.linalg.vector_norm(candidate.truth - sample.stored[row].float(), dim=-1)
        excess = (distance / size / limit).nan_to_num(nan=torch.inf).median(dim=1).values
        if candidate.id == sample.id:
            excess[row] = torch.inf
        best = int(excess.argmin())
        found.append(best if excess[best] <= 1 else None)
    return found


def _fits(states: torch.Tensor, truth: torch.Tensor, limit: torch.Tensor) -> bool:
    """Whether nine rows of ten are within the limit in every layer."""
    return bool((row_errors(states, truth) <= limit).all(dim=1).float().mean() >= 0.9)


def scaled(sample: Checked, limit: torch.Tensor, scale_limit: float, layer_ids: Sequence[int]) -> str:
    """States that are right but for a factor, for all layers or one by one; empty if that is not it."""
    factors = row_scales(sample.stored, sample.truth).median(dim=0).values
    off = (factors - 1).abs()
    if not factors.isfinite().all() or off.max() <= scale_limit:
        return ""
    if bool((sample.stored == 0).all()):
        return "states are all zero"
    if not _fits(sample.stored.float() / factors[:, None], sample.truth, limit):
        return ""
    if off.min() > scale_limit:
        return f"states are scaled by {factors[off.argmax()]:.4g}"
    scaled = [
        f"layer {layer} is scaled by {f:.4g}"
        for layer, f, o in zip(layer_ids, factors, off, strict=True)
        if o > scale_limit
    ]
    return ", ".join(scaled)


def _final_norm(sample: Checked, limit: torch.Tensor, layer_ids: Sequence[int], model: ReferenceModel) -> str:
    if layer_ids[-1] != model.num_layers - 1:
        return ""
    normed = model.normed(sample.truth[:, -1]).unsqueeze(1)
    return "the last state has the final norm applied" if _fits(sample.stored[:, -1:], normed, limit[-1:]) else ""


def _other_layers(sample: Checked, limit: torch.Tensor, layer_ids: Sequence[int], model: ReferenceModel) -> str:
    near = {layer + step for layer in layer_ids for step in range(-_NEIGHBOURS, _NEIGHBOURS + 1)}
    candidates = sorted(layer for layer in near if 0 <= layer < model.num_layers)
    truth = model.states(sample.input_ids, candidates)
    found = []
    for at, layer in enumerate(layer_ids):
        stored = sample.stored[:, at : at + 1]
        for other, candidate in enumerate(candidates):
            if candidate != layer and _fits(stored, truth[:, other : other + 1], limit[at : at + 1]):
                found.append(f"layer {layer} holds the state after layer {candidate}")
    return ", ".join(found)


def _other_rows(sample: Checked, limit: torch.Tensor, others: Iterable[Checked]) -> str:
    """Rows that are right but of another place: the commonest (sample, shift) is named if it explains half of them."""
    wrong = wrong_rows(sample, limit)
    tried = wrong[:: -(-len(wrong) // _TRIED_ROWS)] if len(wrong) else wrong
    if not len(tried):
        return ""
    for candidate in _first(sample, others):
        found = places(sample, tried, candidate, limit)
        shifts = Counter(there - int(row) for row, there in zip(tried, found, strict=True) if there is not None)
        same = candidate.id == sample.id
        if shifts.total() * 2 < len(tried):
            continue
        shift, times = shifts.most_common(1)[0]
        who = describe_rows(sample, limit)
        whose = "" if same else f" of sample {candidate.id!r}"
        if times * 2 <= shifts.total():
            return f"{who} mixed up with other rows{whose}"
        if shift == 0:
            return f"swapped: {who} those{whose}"
        return f"shifted: {who} those{whose} {abs(shift)} {'later' if shift > 0 else 'earlier'}"
    return ""


def _first(sample: Checked, others: Iterable[Checked]) -> Iterator[Checked]:
    yield sample
    yield from (other for other in others if other.id != sample.id)
