"""What a result was made from, and how two runs differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.errors import StoreMismatchError
from pipeline.extract.digests import model_digest, stack_identity
from pipeline.prepare.fingerprint import tokenizer_files
from pipeline.prepare.source import file_sha256
from pipeline.regenerate.job import Job

FORMAT = 1
CODE_VERSION = 1  # raise it when the same input and settings are to give other answers
Json = dict[str, Any]


def identity_of(job: Job) -> Json:
    """Everything that answers depend on.

    Memory settings are not in it, so that a run that had not enough can go on with others.

    Raises:
        InputError: input, target or the stack's record cannot be read.
    """
    settings, target = job.settings, job.target
    tokenizer = tokenizer_files(target.folder, settings.trust_remote_code)
    identity = {
        "format": FORMAT,
        "code_version": CODE_VERSION,
        "sources": [{"name": path.name, "sha256": file_sha256(path)} for path in settings.input],
        "model_sha256": model_digest(target.folder),
        "tokenizer": {name: tokenizer[name] for name in ("sha256", "files")},
        "stack_sha256": stack_identity()["digest"],
        "settings": {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "top_k": settings.top_k,
            "seed": settings.seed,
            "max_new_tokens": settings.max_new_tokens,
            "unfinished": settings.unfinished,
            "max_model_len": job.max_model_len,
            "batch_size": settings.batch_size,
            "unit_rows": job.unit_rows,
            "tp_size": settings.tp_size,
            "dtype": job.dtype,
            "trust_remote_code": settings.trust_remote_code,
            "limit": settings.limit,
        },
    }
    plain: Json = json.loads(json.dumps(identity))
    return plain


def check_same(folder: Path, there: Json, now: Json) -> None:
    """Refuse to go on with other input or settings.

    Args:
        folder: the result's.
        there: its identity, perhaps with more fields than an identity has.
        now: this run's.

    Raises:
        StoreMismatchError: names every field that differs, with both values.
    """
    old, new = (dict(_leaves({name: side.get(name) for name in now})) for side in (there, now))
    differing = [
        f"{name} {_short(old.get(name))} there, {_short(new.get(name))} now"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    if differing:
        raise StoreMismatchError(
            f"{folder} was made with other input or settings: {'; '.join(differing)}; "
            "use them again, or another --output-dir"
        )


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value, 1) if isinstance(value, list) else None
    if inner is None:
        yield name, value
        return
    for key, leaf in inner:
        yield from _leaves(leaf, f"{name}.{key}".lstrip("."))


def _short(value: Any) -> str:
    is_digest = isinstance(value, str) and len(value) == 64
    return f"{value[:12]}…" if is_digest else json.dumps(value)
