"""The draft: speculators' EAGLE-3 model for a target, and the weights it begins with."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from speculators.config import SpeculatorsConfig, VerifierConfig
from speculators.model import DraftVocabMixin
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.models.utils import GEMMA_STYLE_FINAL_NORM_MODEL_TYPES
from speculators.proposals.greedy import GreedyTokenProposalConfig
from transformers import LlamaConfig

from pipeline.errors import CheckpointError, FitError, InputError, SettingsError
from pipeline.train.fit import check_draft
from pipeline.train.settings import TrainSettings
from pipeline.train.vocabulary import Vocabulary

Json = dict[str, Any]
KERNELS = {"flex": "simple_flex_attention"}
"""speculators' names of attention backends, where they differ from ours"""


def read_config(folder: Path) -> Json:
    """A checkpoint folder's config.json.

    Raises:
        InputError: there is none, or it is no JSON object.
    """
    file = folder / "config.json"
    try:
        config = json.loads(file.read_bytes())
    except OSError as error:
        raise InputError(f"no checkpoint at {folder}: cannot read {file.name}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{file} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise InputError(f"{file} holds no settings")
    return config


def layer_config(target: Mapping[str, Any], settings: TrainSettings) -> LlamaConfig:
    """The form of the draft's decoder layers: those of a Llama as wide as the target.

    Args:
        target: the content of the target's config.json; of a multimodal one `text_config` counts.
        settings: number of layers, and a file of fields to replace.

    Raises:
        InputError, SettingsError: the file of fields cannot be read, or names fields that cannot be.
    """
    text = target.get("text_config") or target
    hidden, heads = text["hidden_size"], text["num_attention_heads"]
    fields: Json = {
        "vocab_size": text["vocab_size"],
        "hidden_size": hidden,
        # Mixtures of experts have no dense width, or that of their few dense layers; 3 is Qwen3's ratio.
        "intermediate_size": text.get("intermediate_size") or 3 * hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": text.get("num_key_value_heads") or heads,
        "head_dim": text.get("head_dim") or hidden // heads,
        "hidden_act": text.get("hidden_act") or "silu",
        "max_position_embeddings": text["max_position_embeddings"],
        "initializer_range": text.get("initializer_range") or 0.02,
        "rms_norm_eps": text["rms_norm_eps"],
        "rope_parameters": _rope(text),
        "num_hidden_layers": settings.draft_layers,
        "tie_word_embeddings": False,
    }
    if settings.draft_config:
        fields |= _replaced(settings.draft_config)
    for name in ("vocab_size", "hidden_size"):
        if fields[name] != text[name]:
            raise SettingsError(f"{settings.draft_config}: {name} is the target's, {text[name]}, not {fields[name]}")
    where = settings.draft_config or settings.model_path
    try:
        config = LlamaConfig(**fields)
    except StrictDataclassError as error:
        raise SettingsError(f"{where}: no form of a Llama: {error.__cause__ or error}") from error
    if config.num_attention_heads % config.num_key_value_heads:
        raise SettingsError(
            f"{where}: num_attention_heads {config.num_attention_heads} is no multiple of num_key_value_heads "
            f"{config.num_key_value_heads}"
        )
    return config


def _rope(text: Mapping[str, Any]) -> Json:
    """The target's rotary embedding where a Llama has it too; else the plain one with the target's base."""
    given = text.get("rope_parameters") or text.get("rope_scaling") or {}
    theta = given.get("rope_theta") or text.get("rope_theta") or 10_000.0
    kind = given.get("rope_type") or given.get("type") or "default"
    if kind != "llama3":
        return {"rope_type": "default", "rope_theta": theta}
    return {**given, "rope_type": kind, "rope_theta": theta}


def _replaced(file: Path) -> Json:
    try:
        fields = json.loads(file.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read --draft-config {file}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"--draft-config {file} is not JSON: {error}") from error
    known = set(LlamaConfig().to_dict())
    if not isinstance(fields, dict) or (unknown := sorted(set(fields) - known)):
        raise SettingsError(
            f"--draft-config {file}: not fields of a LlamaConfig: {unknown if isinstance(fields, dict) else fields!r}"
        )
    return fields


def draft_config(
    target: Mapping[str, Any], settings: TrainSettings, layers: list[int], vocabulary_size: int, attention: str
) -> Eagle3SpeculatorConfig:
    """The draft's config as speculators and vLLM read it.

    Args:
        target: the content of the target's config.json.
        settings: of the run.
        layers: auxiliary layers in input numbering.
        vocabulary_size: tokens the draft can propose.
        attention: "flex", "sdpa" or "eager".
    """
    decoder = layer_config(target, settings)
    decoder._attn_implementation = KERNELS.get(attention, attention)
    return Eagle3SpeculatorConfig(
        transformer_layer_config=decoder,
        draft_vocab_size=vocabulary_size,
        norm_before_residual=False,
        norm_before_fc=settings.norm_before_fc,
        norm_output=settings.norm_output,
        eagle_aux_hidden_state_layer_ids=layers,
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=settings.ttt_steps)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(
                name_or_path=str(settings.model_path), architectures=target.get("architectures") or []
            ),
        ),
    )


def build(
    config: Eagle3SpeculatorConfig, vocabulary: Vocabulary, target: Mapping[str, Any], settings: TrainSettings
) -> Eagle3DraftModel:
    """The draft with the weights that training begins with, in float32 on the CPU.

    Embeddings, output layer and final norm begin as the target's; embeddings stay so, and the output layer too unless
    it is to be trained. All else is random, or --init-from's.

    Raises:
        FitError: --init-from is of another form.
        CheckpointError: --init-from lacks weights, or they cannot be read.
    """
    torch.manual_seed(settings.seed)
    draft = Eagle3DraftModel(config)
    draft.load_vocab_mappings(vocabulary.t2d, vocabulary.d2t)
    # Not the model's own method, which asks transformers for the target's config and so for its code, if it has any.
    DraftVocabMixin.load_verifier_weights(draft)
    model_type = (target.get("text_config") or target).get("model_type")
    with torch.no_grad():
        if model_type in GEMMA_STYLE_FINAL_NORM_MODEL_TYPES:  # their norm's gain is one more than its weight
            draft.verifier_norm.weight += 1
        draft.norm.weight.copy_(draft.verifier_norm.weight)
    if settings.init_from:
        _load(draft, settings.init_from)
    draft.lm_head.weight.requires_grad_(settings.train_lm_head)
    return draft


def check_start(folder: Path, config: Eagle3SpeculatorConfig) -> None:
    """Refuse a draft to begin with that is of another form, or lacks weights.

    Args:
        folder: the draft's.
        config: of the draft that is to be trained.

    Raises:
        FitError: its config, or the shape of a weight, is another.
        CheckpointError: it lacks weights, or they cannot be read.
    """
    check_draft(folder, read_config(folder), config.to_dict())
    with torch.device("meta"):  # of a copy: to build a model fills fields of its config in
        wanted = _own_weights(Eagle3DraftModel(copy.deepcopy(config)))
    try:
        with safe_open(folder / "model.safetensors", framework="pt") as weights:
            there = {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read {folder / 'model.safetensors'}: {error}") from error
    if missing := sorted(set(wanted) - set(there)):
        raise CheckpointError(f"{folder} has no {', '.join(missing[:3])}: it is no draft, or damaged")
    for name, weight in wanted.items():
        if there[name] != list(weight.shape):
            raise FitError(f"--init-from {folder}: {name} is {there[name]} there, {list(weight.shape)} here")


def _own_weights(draft: Eagle3DraftModel) -> dict[str, torch.Tensor]:
    """What a checkpoint holds: all but the target's."""
    return {name: weight for name, weight in draft.state_dict().items() if not name.startswith("verifier_")}


def _load(draft: Eagle3DraftModel, folder: Path) -> None:
    weights = read_weights(folder)
    draft.load_state_dict({name: weights[name] for name in _own_weights(draft)}, strict=False)


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """The tensors of a draft's checkpoint.

    Raises:
        CheckpointError: there are none, or they cannot be read.
    """
    try:
        return load_file(folder / "model.safetensors")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read {folder / 'model.safetensors'}: {error}") from error
