"""A store against an independent computation of some of its samples."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from pipeline.errors import InputError, StoreMismatchError
from pipeline.extract.digests import model_digest
from pipeline.store.reader import StoredSample, StoreReader
from pipeline.store.storage import storage_of
from pipeline.verify import bounds
from pipeline.verify.diagnose import describe_rows, diagnose, scaled
from pipeline.verify.judge import (
    Fault,
    LayerFigures,
    LogitFigures,
    float32_faults,
    half_faults,
    layer_figures,
    logit_figures,
    row_limit,
)
from pipeline.verify.measure import Checked, logit_difference
from pipeline.verify.reference import ReferenceModel

_SEARCHED = 16
"""samples of the same unit that are computed to find out whose states a wrong sample holds"""


@dataclass(frozen=True)
class Comparison:
    """What came out; `faults` is empty if the states agree."""

    dtype: str
    storage: str
    storage_error: float | None
    """what the storage lost in the layer where it lost most, as the manifest has it; None where it loses nothing"""
    samples: list[str]
    rows: int
    layers: list[LayerFigures]
    logits: LogitFigures | None
    """None where the store lacks the last layer"""
    faults: list[Fault]
    """worst first"""
    diagnosis: str
    """the mistake in the worst sample; empty without faults"""


def compare(  # noqa: PLR0913 - keyword-only: the command's flags
    reader: StoreReader,
    *,
    model_path: Path,
    count: int,
    rtol: float = bounds.FROBENIUS_FLOAT32,
    trust_remote_code: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Compute samples again, one at a time, with plain transformers, and compare.

    The target is loaded in float32 (the truth) and, where the store is not float32, before that in the store's dtype
    (the noise, rounded as the store's storage does); one after the other, so that only one of them is in memory.

    Args:
        reader: the store.
        model_path: the target's folder; must be the one the store was made from.
        count: how many samples, spread over their lengths, the shortest and the longest among them.
        rtol: bound for float32 stores.
        trust_remote_code: run Python code that comes with the checkpoint.
        progress: told what is being done.

    Raises:
        InputError: the target cannot be loaded, or the store holds no sample.
        StoreMismatchError: it is another target.
    """
    _check_target(reader, model_path)
    layer_ids, dtype = reader.manifest["layer_ids"]["output"], reader.manifest["dtype"]
    chosen = [reader.sample(sample) for sample in choose(reader, count)]
    noise: list[torch.Tensor] | None = None
    if dtype != "float32":
        progress(f"{len(chosen)} samples by transformers in {dtype}")
        half = ReferenceModel(model_path, dtype, trust_remote_code=trust_remote_code)
        noise = [as_stored(reader, half.states(sample.input_ids.tolist(), layer_ids)) for sample in chosen]
        del half
        gc.collect()
    progress(f"{len(chosen)} samples by transformers in float32")
    model = ReferenceModel(model_path, "float32", trust_remote_code=trust_remote_code)
    samples = [_checked(model, one, layer_ids, noise[at] if noise else None) for at, one in enumerate(chosen)]
    found = half_faults(samples, layer_ids) if noise else float32_faults(samples, layer_ids, rtol)
    lost = [layer["relative_error"] for layer in reader.manifest["layers"] if layer["relative_error"] is not None]
    faults = sorted(found, key=lambda fault: -fault.excess)
    return Comparison(
        dtype=dtype,
        storage=reader.manifest["storage"],
        storage_error=max(lost) if lost else None,
        samples=[sample.id for sample in samples],
        rows=sum(len(sample.input_ids) for sample in samples),
        layers=layer_figures(samples, layer_ids),
        logits=logit_figures(samples),
        faults=faults,
        diagnosis=_diagnosis(reader, samples, faults, model) if faults else "",
    )


def choose(reader: StoreReader, count: int) -> list[str]:
    """Samples evenly spread over the order of lengths, from the shortest to the longest; always the same ones."""
    ids = sorted(reader.ids(), key=lambda sample: (reader.rows(sample), sample))
    if not ids:
        raise InputError(f"{reader.folder} holds no sample to compare")
    if count >= len(ids):
        return ids
    return [ids[round(at * (len(ids) - 1) / max(count - 1, 1))] for at in range(count)]


def as_stored(reader: StoreReader, states: torch.Tensor) -> torch.Tensor:
    """States as they would come out of this store: what its storage loses is part of the noise.

    The error in the manifest cannot be added to bounds on medians of rows: it is over all values of a layer, of which a
    few massive ones may hold nearly all (the demo target's layer 14: 0.5% over all, 2.3% in the median row).
    """
    storage = storage_of(reader.spec.storage)
    rows, *form = states.shape
    return storage.open(storage.encode(states).pieces, [0, rows], *form).sample(0)


def _check_target(reader: StoreReader, model_path: Path) -> None:
    there, now = reader.manifest["digests"]["model"], model_digest(model_path)
    if there != now:
        raise StoreMismatchError(
            f"{reader.folder} was made from another target than {model_path} (digest {there[:12]}… there, {now[:12]}… "
            "now): give the right one with --model-path"
        )


def _checked(
    model: ReferenceModel, sample: StoredSample, layer_ids: Sequence[int], noise: torch.Tensor | None
) -> Checked:
    input_ids = sample.input_ids.tolist()
    truth, logits = model.states_and_logits(input_ids, layer_ids)
    checked = Checked(sample.id, sample.unit, input_ids, sample.hidden_states, truth, noise)
    if layer_ids[-1] == model.num_layers - 1:
        checked.logits = logit_difference(model.logits_from_last(sample.hidden_states[:, -1]), logits)
        if noise is not None:
            checked.noise_logits = logit_difference(model.logits_from_last(noise[:, -1]), logits)
    return checked


def _diagnosis(reader: StoreReader, samples: list[Checked], faults: list[Fault], model: ReferenceModel) -> str:
    """The mistake: of all samples together if they share a factor, which shows best over many rows, or the worst's."""
    layer_ids, limit = reader.manifest["layer_ids"]["output"], row_limit(samples, bounds.OUTLIER)
    together = Checked(
        id="",
        unit=0,
        input_ids=[],
        stored=torch.cat([one.stored for one in samples]),
        truth=torch.cat([one.truth for one in samples]),
        noise=None,
    )
    if factor := scaled(together, limit, _scale_limit(samples, limit), layer_ids):
        return f"all samples: {factor}"
    named = next((fault.sample for fault in faults if fault.sample), None)
    worst = next((sample for sample in samples if sample.id == named), max(samples, key=lambda one: len(one.input_ids)))
    mistake = diagnose(
        worst,
        limit=limit,
        scale_limit=_scale_limit([worst], limit),
        layer_ids=layer_ids,
        model=model,
        others=_others(reader, samples, worst, model),
    )
    if not mistake and named is None:
        return "all samples are a little wrong, in no known way"
    return f"sample {worst.id!r}: {mistake or f'{describe_rows(worst, limit)} wrong in no known way'}"


def _scale_limit(samples: list[Checked], limit: torch.Tensor) -> float:
    if samples[0].noise is None:
        return bounds.FROBENIUS_FLOAT32
    return bounds.scale_bound(float(limit.max()) / bounds.OUTLIER, sum(len(one.input_ids) for one in samples))


def _others(reader: StoreReader, samples: list[Checked], worst: Checked, model: ReferenceModel) -> Iterator[Checked]:
    """The samples that were compared, then some of the unit's that were not."""
    yield from samples
    seen = {sample.id for sample in samples}
    layer_ids = reader.manifest["layer_ids"]["output"]
    unit = [sample for sample in reader.ids_of(worst.unit) if sample not in seen]
    for sample in unit[:_SEARCHED]:
        stored = reader.sample(sample)
        input_ids = stored.input_ids.tolist()
        yield Checked(sample, worst.unit, input_ids, stored.hidden_states, model.states(input_ids, layer_ids), None)
