"""What a result depends on, cheap enough to look at on every run: no tokenizer is loaded, no library imported."""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path
from typing import Any

from pipeline.errors import InputError
from pipeline.prepare.source import file_sha256

CODE_VERSION = 1  # raise it when the same input and settings are to give other samples
LIBRARIES = ("jinja2", "tokenizers", "transformers")
# Every file of a model's folder that a tokenizer or a chat template may be made from; config.json names the class.
TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.json",
    "config.json",
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


def fingerprint(sources: list[Path], model: Path, max_seq_len: int, trust_remote_code: bool) -> dict[str, Any]:
    """Describe a run before it is made.

    Args:
        sources: the conversation files.
        model: the target's folder.
        max_seq_len: samples are cut to this many tokens.
        trust_remote_code: whether code from the target's folder may run.

    Returns:
        `sources`, `tokenizer` (name, sha256, files), `settings`, `libraries` and `code_version`: part of the header.

    Raises:
        InputError: an input file or the target's folder is missing or cannot be read.
    """
    return {
        "sources": [{"name": path.name, "sha256": file_sha256(path)} for path in sources],
        "tokenizer": _tokenizer(model, trust_remote_code),
        "settings": {"max_seq_len": max_seq_len, "trust_remote_code": trust_remote_code},
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
        "code_version": CODE_VERSION,
    }


def _tokenizer(model: Path, trust_remote_code: bool) -> dict[str, Any]:
    if not model.is_dir():
        raise InputError(f"no target at {model}: give --model-path the folder of a downloaded model")
    patterns = (*TOKENIZER_FILES, "*.py") if trust_remote_code else TOKENIZER_FILES
    paths = sorted({path for pattern in patterns for path in model.glob(pattern)})
    files = {path.relative_to(model).as_posix(): file_sha256(path) for path in paths}
    lines = "".join(f"{sha256}  {name}\n" for name, sha256 in files.items())
    return {"name": model.resolve().name, "sha256": hashlib.sha256(lines.encode()).hexdigest(), "files": files}
