"""A data set of the Hugging Face hub, read as it comes over the network and never stored whole."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.errors import InputError
from pipeline.prepare.rejection import one_line
from pipeline.prepare.source import Row
from pipeline.prepare.sources.columns import encoded
from pipeline.prepare.sources.files import Part


def revision(hub: str) -> str:
    """The commit that a data set is at.

    Args:
        hub: `owner/name:split`.

    Raises:
        InputError: the hub cannot be asked, or has no such data set.
    """
    from huggingface_hub import HfApi

    name = hub.rpartition(":")[0]
    try:
        return str(HfApi().dataset_info(name).sha)
    except Exception as error:
        raise _unreachable(name, error) from error


def hub_rows(part: Part) -> Iterator[Row]:
    """The rows of one split, numbered from 1, at the commit that the part names.

    Raises:
        InputError: the data set cannot be opened.
    """
    from datasets import load_dataset

    name, _, split = str(part.hub).rpartition(":")
    try:
        rows = iter(load_dataset(name, split=split, streaming=True, revision=part.revision))
    except Exception as error:
        raise _unreachable(name, error) from error
    for number, row in enumerate(rows, 1):
        yield Row(part.name, number, encoded(row))


def _unreachable(name: str, error: Exception) -> InputError:
    why = one_line(str(error) or type(error).__name__, 160)
    return InputError(f"cannot read the data set {name} of the hub: {why}; give a local copy of it as a folder")
