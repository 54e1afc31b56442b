"""Whether a folder's checkpoints are of the run that is to go on there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipeline.errors import SettingsError
from pipeline.train.checkpoint import read_state
from pipeline.train.job import Job
from pipeline.train.kept import Kept


def check_same(job: Job) -> None:
    """Refuse to go on with other data, another target or other settings.

    Raises:
        SettingsError: names every field that differs, with both values.
        CheckpointError: the newest checkpoint is damaged.
    """
    last = Kept(job.settings.output_dir, job.settings.keep).last()
    if last is None:
        return
    there, here = _flat(read_state(last)["identity"]), _flat(json.loads(json.dumps(job.identity)))
    differing = [
        f"{name} {_short(there.get(name))} there, {_short(here.get(name))} now"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]
    if differing:
        raise SettingsError(
            f"{job.settings.output_dir} holds the checkpoints of another run: {'; '.join(differing)}; use these again, "
            "or another --output-dir"
        )


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {prefix: value}
    return {
        name: leaf for key, inner in value.items() for name, leaf in _flat(inner, f"{prefix}.{key}".lstrip(".")).items()
    }


def _short(value: Any) -> str:
    text = json.dumps(value)
    return f"{value[:12]}…" if isinstance(value, str) and len(value) == 64 else text
