"""The demo target as a checkpoint folder: weights dequantised once, tokenizer, chat template, generation settings.

The weights are bf16, the format SmolLM2 was trained and published in. A Q4_1 block spreads 16 levels over its range and
so is already off by up to 1/30 of it; rounding to bf16 moves a value by at most 1/256 of itself. Whoever
computes in float32 gets those same values exactly, bf16 being a prefix of float32, so two engines still agree to
float32's own rounding.
"""

from __future__ import annotations

from pathlib import Path


def write_checkpoint(gguf: Path, folder: Path) -> None:
    """Write `config.json`, `model.safetensors`, `generation_config.json` and the tokenizer's files.

    Args:
        gguf: the checked GGUF file.
        folder: an existing folder.
    """
    from gguf import GGUFReader

    from pipeline.target.tokenizer import build_tokenizer

    _write_weights(gguf, folder)
    build_tokenizer(GGUFReader(gguf)).save_pretrained(folder)


def _write_weights(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    # dtype=float32: each value is dequantised in float32 and rounded once.
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    model.bfloat16()
    # The GGUF loader leaves a display name in the configuration, which engines would take for a model's path.
    model.config.__dict__.pop("_model_name_or_path", None)
    model.save_pretrained(folder)
