"""A store written out in the form of one version of speculators.

`.pt` files are pickles inside, which this project writes nowhere else, as to read a pickle is to run what it says. Here
the reader demands them: speculators 0.3.0 has no other format. Only tensors, lists and strings are in them, so that
`torch.load(weights_only=True)`, which runs nothing, reads them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import safetensors.torch
import torch

from pipeline.files import sync
from pipeline.store.export.folder import new_folder
from pipeline.store.export.forms import Form, stream
from pipeline.store.index import StoreIndex, read_index

_FILE = 4096
"""bytes that a file of a sample takes beside its tensors, about: names, headers, part of a block"""
_ROW_LISTS = pa.schema(
    [("input_ids", pa.list_(pa.int64())), ("loss_mask", pa.list_(pa.int64())), ("seq_len", pa.int64())]
)


def export(store: Path, output: Path, form: Form) -> int:
    """Write a finished store's samples into a new folder, which has its name only when it is whole.

    Args:
        store: its folder.
        output: must not exist.
        form: see `pipeline.store.export`.

    Returns:
        How many samples were written.

    Raises:
        InputError: there is no store, or it is not finished.
        StoreDamagedError: it is not what was written.
        SettingsError: the folder exists, or cannot be written to.
        NoSpaceError: it does not fit on the disk.
    """
    index = read_index(store)
    with new_folder(output, _bytes(index)) as folder:
        _WRITERS[form](stream(store, form), folder)
    return len(index.ids)


def _bytes(index: StoreIndex) -> int:
    """What an export takes, about; `token_ids`, `input_ids` and `loss_mask` are int64."""
    states = len(index.spec.layer_ids) * index.spec.hidden_size * getattr(torch, index.spec.dtype).itemsize
    return int(index.rows.sum()) * (states + 3 * 8) + len(index.ids) * _FILE


def _write_pickles(samples: Iterable[dict[str, Any]], folder: Path) -> None:
    for number, sample in enumerate(samples):
        content = io.BytesIO()  # torch.save to a file tells a full disk by a RuntimeError
        torch.save(sample, content)
        _write(folder / f"data_{number}.pt", content.getbuffer())


def _write_arrow(samples: Iterable[dict[str, Any]], folder: Path) -> None:
    import datasets  # takes a second

    states = folder / "hidden_states"
    rows = states / "rows.tmp"  # a data set refuses to be saved to the folder that it is in
    states.mkdir()
    with pa.ipc.new_stream(rows, _ROW_LISTS) as table:
        for number, sample in enumerate(samples):
            tensors = {name: sample[name] for name in ("token_ids", "hidden_states")}
            _write(states / f"hs_{number}.safetensors", safetensors.torch.save(tensors))
            lists = [[sample["input_ids"].numpy()], [sample["loss_mask"].numpy()], [sample["seq_len"]]]
            table.write_batch(pa.record_batch(lists, schema=_ROW_LISTS))
    data = datasets.Dataset.from_file(str(rows))
    data.set_format("torch")  # kept in the data set: its reader compares tensors
    datasets.disable_progress_bars()
    data.save_to_disk(folder)
    rows.unlink()


def _write(file: Path, content: bytes | memoryview) -> None:
    file.write_bytes(content)
    sync(file)


_WRITERS: dict[Form, Callable[[Iterable[dict[str, Any]], Path], None]] = {
    "speculators-0.3.0": _write_pickles,
    "speculators-0.9.0": _write_arrow,
}
