"""A draft as training leaves it: a folder with config.json and model.safetensors, in speculators' form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load_file

from pipeline.errors import CheckpointError, InputError
from pipeline.extract.digests import data_digest

if TYPE_CHECKING:
    import torch
    from speculators.models.eagle3 import Eagle3DraftModel

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
NOT_SAVED = frozenset({"verifier_lm_head.weight", "verifier_norm.weight"})
"""in the model while it is trained, and never in a checkpoint: they are the target's"""
SEAL = "checkpoint.json"
"""what training says of a checkpoint's files: their sizes and sha256"""


@dataclass(frozen=True)
class Draft:
    """A checkpoint's settings and tensors."""

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]

    @property
    def layer(self) -> Mapping[str, Any]:
        """The settings of its decoder layer, a transformers config."""
        return self.config["transformer_layer_config"]

    @property
    def hidden_size(self) -> int:
        """Width of a state; the target's too."""
        return int(self.layer["hidden_size"])

    @property
    def vocab_size(self) -> int:
        """The target's."""
        return int(self.layer["vocab_size"])

    @property
    def draft_vocab_size(self) -> int:
        """Tokens that the draft can propose."""
        return int(self.config["draft_vocab_size"])

    @property
    def layer_ids(self) -> tuple[int, ...]:
        """The target's layers whose states it reads, in input numbering (docs/architecture.md)."""
        return tuple(self.config["eagle_aux_hidden_state_layer_ids"])

    @property
    def speculative_tokens(self) -> int:
        """How many tokens a round it was trained to propose."""
        return int(self.config["speculators_config"]["proposal_methods"][0]["speculative_tokens"])

    def to_target(self) -> torch.Tensor | None:
        """The target's id of each draft id, int64 `[draft_vocab_size]`; None where they are the same.

        `d2t` holds differences: the target's id of draft id i is i + d2t[i].
        """
        import torch

        if "d2t" not in self.tensors:
            return None
        return self.tensors["d2t"] + torch.arange(self.draft_vocab_size)

    def model(self) -> Eagle3DraftModel:
        """Speculators' model of it in float32, for computing and not for training.

        The target's folder is not looked for: the two tensors that are the target's are used only by the loss.
        Attention is torch's own, with a mask of rows x rows x steps bytes (50 MB for 4,096 rows): speculators' flex
        attention would need samples padded to whole blocks, as its trainer's batches are.

        Raises:
            CheckpointError: its tensors are not those that its settings ask for.
        """
        from speculators.models.eagle3 import Eagle3DraftModel

        model = Eagle3DraftModel(draft_config(self.config))
        try:
            missing, unexpected = model.load_state_dict(dict(self.tensors), strict=False)
        except RuntimeError as error:  # a shape
            raise CheckpointError(f"{self.folder / WEIGHTS} does not fit its {CONFIG}: {_one_line(error)}") from error
        for name in [*unexpected, *(set(missing) - NOT_SAVED)]:
            what = "is in" if name in unexpected else "is missing from"
            raise CheckpointError(f"{name} {what} {self.folder / WEIGHTS}, which does not fit its {CONFIG}")
        return model.float().eval().requires_grad_(False)


def draft_config(config: Mapping[str, Any]) -> Any:
    """Speculators' own config object of these settings, with torch's attention."""
    from speculators.models.eagle3 import Eagle3SpeculatorConfig

    made = Eagle3SpeculatorConfig.from_dict(json.loads(json.dumps(config)))
    made.transformer_layer_config._attn_implementation = "sdpa"
    return made


def read_draft(folder: Path) -> Draft:
    """Read a checkpoint; its tensors are mapped from the file.

    Raises:
        InputError: there is no such folder.
        CheckpointError: a file is missing, damaged or not what was written, or its settings are no EAGLE-3 draft's.
    """
    if not folder.is_dir():
        raise InputError(f"no draft at {folder}: give the folder of a checkpoint, such as best/ of a training run")
    _check_seal(folder)
    config = _read_config(folder / CONFIG)
    try:
        tensors = load_file(folder / WEIGHTS)
    except OSError as error:
        raise CheckpointError(f"cannot read {folder / WEIGHTS}: {error.strerror or error}: give another one") from error
    except SafetensorError as error:
        raise CheckpointError(f"{folder / WEIGHTS} is damaged ({error}): give another checkpoint") from error
    draft = Draft(folder, config, tensors)
    try:
        _ = draft.hidden_size, draft.vocab_size, draft.draft_vocab_size, draft.layer_ids, draft.speculative_tokens
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CheckpointError(f"{folder / CONFIG} is no EAGLE-3 draft's: {error!r}: give another checkpoint") from error
    return draft


def _check_seal(folder: Path) -> None:
    """Compare the two files with what training wrote, where it said so."""
    if not (folder / SEAL).exists():
        return
    try:
        files = json.loads((folder / SEAL).read_bytes())["files"]
        written = {name: str(files[name]["sha256"]) for name in (CONFIG, WEIGHTS)}
        found = {name: data_digest(folder / name) for name in written}
    except (OSError, ValueError, KeyError, TypeError, InputError) as error:
        raise CheckpointError(f"{folder} is damaged ({error}): give another checkpoint") from error
    for name, sha256 in written.items():
        if sha256 != found[name]:
            raise CheckpointError(f"{folder / name} is not what was written ({SEAL}): give another checkpoint")


def _read_config(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_bytes())
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}: give the folder of a checkpoint") from error
    except ValueError as error:
        raise CheckpointError(f"{file} is damaged ({error}): give another checkpoint") from error
    if not isinstance(config, dict) or config.get("speculators_model_type") != "eagle3":
        raise CheckpointError(f"{file} is not that of an EAGLE-3 draft in speculators' form (speculators_model_type)")
    return config


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
