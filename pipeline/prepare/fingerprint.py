"""What a result depends on, cheap enough to look at on every run: no tokenizer is loaded, no library imported."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from pipeline.errors import InputError
from pipeline.prepare.source import file_sha256
from pipeline.prepare.sources.files import Input, Part

CODE_VERSION = 2  # raise it when the same input and settings are to give other samples
LIBRARIES = ("jinja2", "tokenizers", "transformers")
# Every file of a model's folder that a tokenizer or a chat template may be made from; config.json names the class.
TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.json",
    "config.json",
    "generation_config.json",  # the tokens at which a turn ends
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
    "*.jinja",
    "*.model",
    "*.tiktoken",
    "additional_chat_templates/*.jinja",
)


Digest = Callable[[Path], str]
"""sha256 of a file, in hex"""


def fingerprint(
    inputs: Sequence[Input], model: Path, settings: dict[str, Any], digest: Digest = file_sha256
) -> dict[str, Any]:
    """Describe a run before it is made.

    Args:
        inputs: with the weights, caps and formats that were chosen for them.
        model: the target's folder.
        settings: all others that samples depend on; with `trust_remote_code`, code from the target's folder may run.
        digest: of a file.

    Returns:
        `sources`, `tokenizer` (name, sha256, files), `settings`, `libraries` and `code_version`: part of the header.

    Raises:
        InputError: an input file or the target's folder is missing or cannot be read.
    """
    return {
        "sources": [_source(part, digest) for one in inputs for part in one.parts],
        "tokenizer": tokenizer_files(model, settings["trust_remote_code"]),
        "settings": settings | {f"input {one.given}": one.choices for one in inputs if one.choices},
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
        "code_version": CODE_VERSION,
    }


def _source(part: Part, digest: Digest) -> dict[str, str]:
    """A file by its content; a hub's data set by its commit, which names its content."""
    return {"name": part.name, "sha256": part.revision or digest(part.path)}


def tokenizer_files(model: Path, trust_remote_code: bool) -> dict[str, Any]:
    """The files that a target's tokenizer and chat template are made from.

    Returns:
        `name` of the folder, `files` with the sha256 of each, and `sha256` over them.

    Raises:
        InputError: there is no such folder, or a file in it cannot be read.
    """
    if not model.is_dir():
        raise InputError(f"no target at {model}: give --model-path the folder of a downloaded model")
    patterns = (*TOKENIZER_FILES, "*.py") if trust_remote_code else TOKENIZER_FILES
    paths = sorted({path for pattern in patterns for path in model.glob(pattern)})
    files = {path.relative_to(model).as_posix(): file_sha256(path) for path in paths}
    lines = "".join(f"{sha256}  {name}\n" for name, sha256 in files.items())
    return {"name": model.resolve().name, "sha256": hashlib.sha256(lines.encode()).hexdigest(), "files": files}
