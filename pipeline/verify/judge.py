"""Which of the measured errors are faults. Bounds and their reasons are in `pipeline.verify.bounds`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from pipeline.verify import bounds
from pipeline.verify.diagnose import places, wrong_rows
from pipeline.verify.measure import Checked, frobenius_errors, row_errors, row_scales


@dataclass(frozen=True)
class Fault:
    """A bound that was passed."""

    what: str
    sample: str | None
    """None where it is one of all samples together"""
    layer: int | None
    """an output id; None where it is one of the predictions"""
    excess: float
    """measured over allowed"""


@dataclass(frozen=True)
class LayerFigures:
    """One captured layer over all samples; the noise's figures are None where the store is float32."""

    output: int
    frobenius: float
    """worst relative error of a sample"""
    frobenius_sample: str
    frobenius_noise: float | None
    row: float
    """worst relative error of a row"""
    noise_ratio: float | None
    """median row error over the noise's"""
    scale: float
    """median factor between states and reference"""
    outliers: int | None
    """rows beyond `bounds.OUTLIER` times the median noise"""
    outliers_noise: int | None


@dataclass(frozen=True)
class LogitFigures:
    """Predictions from the stored last states against the reference's own."""

    logprob: float
    """largest difference of a log-probability"""
    logprob_noise: float | None
    same_top: float
    """share of rows whose most likely token is the same"""
    same_top_noise: float | None


def row_limit(samples: Sequence[Checked], factor: float) -> torch.Tensor:
    """What a right row's error is below, `[layers]`: a constant in float32, `factor` times the median noise else."""
    noise = _noise_errors(samples)
    if noise is None:
        return torch.full((samples[0].truth.shape[1],), bounds.ROW_FLOAT32)
    # a noise of 0 (weights and inputs that round to themselves) is no bound
    return factor * noise.median(dim=0).values.clamp_min(1e-4)


def layer_figures(samples: Sequence[Checked], layer_ids: Sequence[int]) -> list[LayerFigures]:
    """The figures of every captured layer."""
    frobenius = torch.stack([frobenius_errors(sample.stored, sample.truth) for sample in samples])
    errors = torch.cat([row_errors(sample.stored, sample.truth) for sample in samples])
    scales = torch.cat([row_scales(sample.stored, sample.truth) for sample in samples]).median(dim=0).values
    noise, limit = _noise_errors(samples), row_limit(samples, bounds.OUTLIER)
    noise_frobenius = [frobenius_errors(s.noise, s.truth) for s in samples if s.noise is not None]
    return [
        LayerFigures(
            output=layer,
            frobenius=float(frobenius[:, at].max()),
            frobenius_sample=samples[int(frobenius[:, at].argmax())].id,
            frobenius_noise=None if noise is None else float(torch.stack(noise_frobenius)[:, at].max()),
            row=float(errors[:, at].max()),
            noise_ratio=None if noise is None else _ratio(errors[:, at], noise[:, at]),
            scale=float(scales[at]),
            outliers=None if noise is None else int((errors[:, at] > limit[at]).sum()),
            outliers_noise=None if noise is None else int((noise[:, at] > limit[at]).sum()),
        )
        for at, layer in enumerate(layer_ids)
    ]


def logit_figures(samples: Sequence[Checked]) -> LogitFigures | None:
    """The predictions' figures; None where the last layer was not captured."""
    ours = [sample.logits for sample in samples if sample.logits]
    noise = [sample.noise_logits for sample in samples if sample.noise_logits]
    if not ours:
        return None
    return LogitFigures(
        logprob=float(torch.cat([one.logprob for one in ours]).max()),
        logprob_noise=float(torch.cat([one.logprob for one in noise]).max()) if noise else None,
        same_top=float(torch.cat([one.same_top for one in ours]).float().mean()),
        same_top_noise=float(torch.cat([one.same_top for one in noise]).float().mean()) if noise else None,
    )


def float32_faults(samples: Sequence[Checked], layer_ids: Sequence[int], rtol: float) -> Iterator[Fault]:
    """Faults of a float32 store: plain bounds on samples, rows and log-probabilities."""
    for sample in samples:
        frobenius = frobenius_errors(sample.stored, sample.truth)
        rows = row_errors(sample.stored, sample.truth)
        for at, layer in enumerate(layer_ids):
            yield from _beyond("relative error", float(frobenius[at]), rtol, sample.id, layer)
            worst = int(rows[:, at].argmax())
            yield from _beyond(
                f"relative error of row {worst}", float(rows[worst, at]), bounds.ROW_FLOAT32, sample.id, layer
            )
        if sample.logits:
            largest = float(sample.logits.logprob.max())
            yield from _beyond("log-probability difference", largest, bounds.LOGPROB_FLOAT32, sample.id, None)


def half_faults(samples: Sequence[Checked], layer_ids: Sequence[int]) -> Iterator[Fault]:
    """Faults of a bfloat16 or float16 store: errors against the noise of the same dtype."""
    noise = _noise_errors(samples)
    assert noise is not None, "a half-precision store without noise"  # noqa: S101 - the caller measures it
    rows, limit = len(noise), row_limit(samples, bounds.OUTLIER)
    median = noise.median(dim=0).values
    for at, figures in enumerate(layer_figures(samples, layer_ids)):
        layer = figures.output
        allowed = bounds.NOISE_RATIO + bounds.few(rows)
        yield from _beyond("median row error over the noise's", figures.noise_ratio or 0.0, allowed, None, layer)
        allowed = bounds.scale_bound(float(median[at]), rows)
        yield from _beyond("scale's deviation from 1", abs(figures.scale - 1), allowed, None, layer)
        allowed = bounds.OUTLIERS_RATIO * (figures.outliers_noise or 0) + bounds.OUTLIERS_MORE
        most = max(samples, key=lambda one: int((row_errors(one.stored, one.truth)[:, at] > limit[at]).sum()))
        yield from _beyond("number of outlier rows", figures.outliers or 0, allowed, most.id, layer)
    for sample in samples:
        yield from _sample_faults(sample, layer_ids, median)
    yield from _misplaced_rows(samples)
    yield from _logit_faults(samples)


def _sample_faults(sample: Checked, layer_ids: Sequence[int], median: torch.Tensor) -> Iterator[Fault]:
    ours = row_errors(sample.stored, sample.truth)
    noise = torch.maximum(row_errors(_noise(sample), sample.truth).median(dim=0).values, median)
    allowed = bounds.SAMPLE_RATIO + bounds.few(len(ours))
    for at, layer in enumerate(layer_ids):
        ratio = _ratio(ours[:, at], noise[at : at + 1])
        yield from _beyond("median row error over the noise's", ratio, allowed, sample.id, layer)


def _misplaced_rows(samples: Sequence[Checked]) -> Iterator[Fault]:
    """Outliers that are right states of another place. One alone may be chance; a swap makes two."""
    outlier, match = row_limit(samples, bounds.OUTLIER), row_limit(samples, bounds.MATCH)
    for sample in samples:
        rows = wrong_rows(sample, outlier)
        found = set[int]()
        for candidate in samples:
            where = places(sample, rows, candidate, match)
            found |= {int(row) for row, place in zip(rows, where, strict=True) if place is not None}
        if len(found) > 1:
            yield Fault(f"{len(found)} rows hold the states of other rows", sample.id, None, float(len(found)))


def _logit_faults(samples: Sequence[Checked]) -> Iterator[Fault]:
    ours = [sample.logits.logprob for sample in samples if sample.logits]
    noise = [sample.noise_logits.logprob for sample in samples if sample.noise_logits]
    if ours and noise:
        ratio, rows = _ratio(torch.cat(ours), torch.cat(noise)), sum(map(len, ours))
        what = "median log-probability difference over the noise's"
        yield from _beyond(what, ratio, bounds.LOGPROB_RATIO + bounds.few(rows), None, None)


def _noise_errors(samples: Sequence[Checked]) -> torch.Tensor | None:
    """Row errors of the noise over all samples, `[rows, layers]`."""
    errors = [row_errors(sample.noise, sample.truth) for sample in samples if sample.noise is not None]
    return torch.cat(errors) if errors else None


def _noise(sample: Checked) -> torch.Tensor:
    assert sample.noise is not None, "a half-precision store without noise"  # noqa: S101 - the caller measures it
    return sample.noise


def _ratio(errors: torch.Tensor, noise: torch.Tensor) -> float:
    """Median over median; 0/0 is no error."""
    ours, theirs = float(errors.median()), float(noise.median())
    return ours / max(theirs, 1e-4 if ours else 1.0)


def _beyond(what: str, measured: float, allowed: float, sample: str | None, layer: int | None) -> Iterator[Fault]:
    if not measured <= allowed:
        yield Fault(f"{what} {measured:.3g}, at most {allowed:.2g}", sample, layer, measured / allowed)
