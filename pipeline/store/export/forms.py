"""One sample in the form of one version of speculators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from pipeline.store.dataset import HiddenStateDataset, Sample

Form = Literal["speculators-0.3.0", "speculators-0.9.0"]


def stream(store: Path, form: Form) -> Iterator[dict[str, Any]]:
    """Yield every sample of a finished store, its content checked, as a dict of this form.

    Args:
        store: its folder.
        form: "speculators-0.3.0": what `torch.load` makes of one of its files: `input_ids` and `loss_mask` int64
            `[rows]`, `hidden_states` a list with a tensor `[rows, hidden]` for each layer. "speculators-0.9.0": the
            row of its data set, `input_ids` and `loss_mask` int64 `[rows]` and `seq_len`, and the tensors of its file,
            `token_ids` int64 `[rows]` and `hidden_states` `[rows, layers, hidden]`.

    Raises:
        InputError: there is no store, or it is not finished.
        StoreDamagedError: it, or the next sample, is not what was written.
    """
    return map(_FORMS[form], HiddenStateDataset(store, check="digests"))


def _speculators_0_3_0(sample: Sample) -> dict[str, Any]:
    return {
        "input_ids": sample["input_ids"],
        "hidden_states": [layer.contiguous() for layer in sample["hidden_states"].unbind(dim=1)],
        "loss_mask": sample["loss_mask"].long(),
    }


def _speculators_0_9_0(sample: Sample) -> dict[str, Any]:
    return {
        "input_ids": sample["input_ids"],
        "loss_mask": sample["loss_mask"].long(),
        "seq_len": len(sample["input_ids"]),
        "token_ids": sample["input_ids"],
        "hidden_states": sample["hidden_states"],
    }


_FORMS: dict[Form, Callable[[Sample], dict[str, Any]]] = {
    "speculators-0.3.0": _speculators_0_3_0,
    "speculators-0.9.0": _speculators_0_9_0,
}
