"""The check at the pipeline's end: both exports of a draft are the same draft to who serves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ops.pipeline.errors import ExportsDifferError, MissingInputError

COUNTS = ("drafts", "accepted_per_position")


def exports_served_alike(folder: Path) -> None:
    """Compare the acceptance counts of all drafts of an evaluation.

    Args:
        folder: what evaluate wrote: `evaluation.json`, whose `drafts` holds, by name, counts.

    Raises:
        ExportsDifferError: a count differs; names it with all values.
        MissingInputError: the file is not what evaluate writes.
    """
    file = folder / "evaluation.json"
    drafts = _drafts(file)
    for count in COUNTS:
        values = {name: draft[count] for name, draft in drafts.items()}
        if len({json.dumps(value) for value in values.values()}) != 1:
            told = ", ".join(f"{name} {value}" for name, value in values.items())
            raise ExportsDifferError(
                f"the exports are not served alike: {count}: {told} ({file}); export again, and compare their tensors"
            )


def _drafts(file: Path) -> dict[str, dict[str, Any]]:
    try:
        runs = json.loads(file.read_bytes())["drafts"]
        drafts = {str(name): {count: run[count] for count in COUNTS} for name, run in runs.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise MissingInputError(f"{file} has no counts of drafts ({error!r}); run evaluate again") from error
    if len(drafts) < 2:
        raise MissingInputError(f"{file} compares {len(drafts)} drafts, two are needed; run evaluate again")
    return drafts
