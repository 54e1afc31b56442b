"""What a target's config.json says about its shape; read without transformers, so that a plan costs nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import InputError, SettingsError

_DTYPES = ("bfloat16", "float16", "float32")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A target's folder and the numbers extraction needs."""

    folder: Path
    num_layers: int
    """decoder layers"""
    hidden_size: int
    """width of a state"""
    vocab_size: int
    """token ids are below it"""
    max_positions: int | None
    """positions the target was made for, where its config says"""
    dtype: str
    """the checkpoint's own"""

    def computing_dtype(self, asked: str) -> str:
        """The dtype to compute in: the one asked for, or for "auto" the checkpoint's own.

        vLLM's own "auto" turns float32 checkpoints into bfloat16, so "auto" is settled here and never reaches it.
        """
        return self.dtype if asked == "auto" else asked

    def check_length(self, max_seq_len: int) -> None:
        """Refuse samples longer than the target can place.

        Raises:
            SettingsError: `max_seq_len` is more than the target's positions.
        """
        if self.max_positions is not None and max_seq_len > self.max_positions:
            raise SettingsError(
                f"--max-seq-len {max_seq_len} is more than the {self.max_positions} positions of the target at "
                f"{self.folder}; use at most that"
            )


def locate_target(model_path: Path, *, config_only: bool) -> Path:
    """The target's local folder: the one named, or a hub model's snapshot.

    Args:
        model_path: a folder, or a hub's `owner/name`.
        config_only: of a hub model, fetch no more than config.json.

    Raises:
        InputError: neither a folder nor a model the hub gives.
    """
    if model_path.is_dir():
        return model_path
    name = str(model_path)
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise InputError(f"no target at {model_path}: it is not a folder, nor a hub model's owner/name")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["config.json"] if config_only else None))
    except (OSError, ValueError) as error:  # the hub's own errors derive from these
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"target {name} is neither a folder here nor to be had from the hub ({type(error).__name__}: {reason}); "
            "download it first and give its folder as --model-path"
        ) from error


def read_target(folder: Path) -> Target:
    """Read a checkpoint folder's config.json; a multimodal target's text model is under `text_config`.

    Raises:
        InputError: there is none, or it lacks the numbers extraction needs.
    """
    file = folder / "config.json"
    try:
        config = json.loads(file.read_bytes())
    except OSError as error:
        raise InputError(f"no target at {folder}: cannot read {file.name}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{file} is not JSON: {error}; download the target again") from error
    if not isinstance(config, dict):
        raise InputError(f"{file} holds no settings; download the target again")
    text = config["text_config"] if isinstance(config.get("text_config"), dict) else config
    positions = text.get("max_position_embeddings")
    return Target(
        folder=folder,
        num_layers=_number(file, text, "num_hidden_layers"),
        hidden_size=_number(file, text, "hidden_size"),
        vocab_size=_number(file, text, "vocab_size"),
        max_positions=positions if isinstance(positions, int) else None,
        dtype=_dtype(text, config),
    )


def _number(file: Path, config: dict[str, Any], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or value < 1:
        raise InputError(f"{file} gives no {name}: it is no language model's, or of a form not known here")
    return value


def _dtype(*configs: dict[str, Any]) -> str:
    """`dtype`, which older checkpoints call `torch_dtype`; bfloat16 where a checkpoint is quantised or silent."""
    for config in configs:
        for name in ("dtype", "torch_dtype"):
            if config.get(name) in _DTYPES:
                return str(config[name])
    return "bfloat16"
