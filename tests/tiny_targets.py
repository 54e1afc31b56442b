"""Tiny random targets with the shapes of real ones, for tests through the real engine.

Sizes obey vLLM's CPU kernels (head sizes of 32 or 64). Weights are random but seeded, in float32, so that
any two computations of the same states can be compared to 1e-6.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCAB_SIZE = 128
MAX_LENGTH = 4096


def save_tokenizer(folder: Path) -> None:
    """A word-level tokenizer whose words are `t0` to `t127`; `t1` ends a turn."""
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCAB_SIZE)}, unk_token="t0"))  # noqa: S106
    words.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="t1", unk_token="t0").save_pretrained(folder)  # noqa: S106


def llama(folder: Path, layers: int = 6) -> Path:
    """A Llama of `layers` layers, hidden size 128, saved in `folder`."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=MAX_LENGTH,
        bos_token_id=2,
        eos_token_id=1,
        dtype="float32",
    )
    model = LlamaForCausalLM(config)
    _randomise(model)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def deepseek_config() -> DeepseekV3Config:
    """Six DeepSeek-V3 layers, the first dense, the others a mixture of 4 routed experts and a shared one.

    Query and key heads are 32 + 32 wide and value heads 64, so that one head size of 64 serves the CPU's attention.
    """
    return DeepseekV3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=128,
        intermediate_size=256,
        moe_intermediate_size=64,
        num_hidden_layers=6,
        num_attention_heads=2,
        num_key_value_heads=2,
        n_routed_experts=4,
        n_shared_experts=1,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        topk_method="noaux_tc",
        scoring_func="sigmoid",
        first_k_dense_replace=1,
        q_lora_rank=64,
        kv_lora_rank=64,
        qk_rope_head_dim=32,
        qk_nope_head_dim=32,
        v_head_dim=64,
        max_position_embeddings=MAX_LENGTH,
        bos_token_id=2,
        eos_token_id=1,
        dtype="float32",
    )


def deepseek(folder: Path) -> Path:
    """A DeepSeek-V3-shaped mixture of experts, saved in `folder`."""
    model = _deepseek_model()
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def kimi(folder: Path) -> Path:
    """The same text model inside a Kimi-K2.5 checkpoint: weights under `language_model.`, a small vision tower.

    vLLM's class builds an image processor out of the model's folder with the folder's own code, always; the stand-in
    written here has the two things its constructor reads and nothing that could process an image.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model = _deepseek_model()
    weights = {f"language_model.{name}": tensor.contiguous() for name, tensor in model.state_dict().items()}
    weights |= _vision_weights()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    text_config = deepseek_config().to_dict() | {"architectures": ["DeepseekV3ForCausalLM"]}
    config = {
        "model_type": "kimi_k25",
        "architectures": ["KimiK25ForConditionalGeneration"],
        "dtype": "float32",
        "media_placeholder_token_id": 3,
        "text_config": text_config,
        "vision_config": VISION_CONFIG,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"auto_map": {"AutoImageProcessor": "stand_in.StandInImageProcessor"}})
    )
    (folder / "stand_in.py").write_text(STAND_IN)
    save_tokenizer(folder)
    return folder


VISION_CONFIG = {
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "hidden_size": 64,
    "intermediate_size": 64,
    "mm_hidden_size": 64,
    "init_pos_emb_height": 4,
    "init_pos_emb_width": 4,
    "init_pos_emb_time": 4,
}

STAND_IN = '''
from transformers.image_processing_utils import BaseImageProcessor


class StandInImageProcessor(BaseImageProcessor):
    """Has what the engine's constructor reads; processes nothing."""

    num_frames_per_chunk = 4

    def media_tokens_calculator(self, media):
        raise RuntimeError("text only: nobody may ask for an image's tokens")
'''


def _vision_weights() -> dict[str, torch.Tensor]:
    """Weights for every parameter of the vision tower and its projector, as vLLM's own class names them."""
    patch, hidden, mlp, text = 14, VISION_CONFIG["hidden_size"], VISION_CONFIG["intermediate_size"], 128
    merged = 4 * hidden
    block = "vision_tower.encoder.blocks.0."
    shapes = {
        "vision_tower.patch_embed.proj.weight": (hidden, 3, patch, patch),
        "vision_tower.patch_embed.proj.bias": (hidden,),
        "vision_tower.patch_embed.pos_emb.weight": (4, 4, hidden),
        block + "norm0.weight": (hidden,),
        block + "norm0.bias": (hidden,),
        block + "norm1.weight": (hidden,),
        block + "norm1.bias": (hidden,),
        block + "wqkv.weight": (3 * hidden, hidden),
        block + "wqkv.bias": (3 * hidden,),
        block + "wo.weight": (hidden, hidden),
        block + "wo.bias": (hidden,),
        block + "mlp.fc0.weight": (mlp, hidden),
        block + "mlp.fc0.bias": (mlp,),
        block + "mlp.fc1.weight": (hidden, mlp),
        block + "mlp.fc1.bias": (hidden,),
        "vision_tower.encoder.final_layernorm.weight": (hidden,),
        "vision_tower.encoder.final_layernorm.bias": (hidden,),
        "mm_projector.pre_norm.weight": (hidden,),
        "mm_projector.pre_norm.bias": (hidden,),
        "mm_projector.proj.0.weight": (merged, merged),
        "mm_projector.proj.0.bias": (merged,),
        "mm_projector.proj.2.weight": (text, merged),
        "mm_projector.proj.2.bias": (text,),
    }
    return {name: torch.zeros(shape) for name, shape in shapes.items()}


def _randomise(model: torch.nn.Module) -> None:
    """Weights large enough that layers differ clearly, norms that are not all ones."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(1 + 0.1 * noise if "norm" in name else 0.08 * noise)


def _deepseek_model() -> DeepseekV3ForCausalLM:
    torch.manual_seed(0)
    model = DeepseekV3ForCausalLM(deepseek_config())
    _randomise(model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("gate.weight"):
                # Two experts whose scores tie to the last bit may be ranked differently by two computations.
                weight.mul_(20)
    return model
