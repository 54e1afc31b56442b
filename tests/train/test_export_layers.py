"""The layers' numbers, as the servers that read them count."""

from __future__ import annotations

import pytest

from pipeline.errors import ExportError
from pipeline.export.layers import check_layers, sglang_layer_ids


def captured_by_sglang(found: list[int] | None, num_layers: int, target_type: str) -> list[int]:
    """What SGLang captures (`set_eagle3_layers_to_capture`), in input numbers."""
    if found is None:
        return [2, num_layers // 2, num_layers - 3]
    if target_type == "gpt_oss":
        return found
    if target_type in ("deepseek_v3", "kimi_k2") and found[0] != 1:
        return found
    return [layer + 1 for layer in found]


@pytest.mark.parametrize("target_type", ["llama", "qwen3_moe", "deepseek_v3", "kimi_k2", "gpt_oss"])
@pytest.mark.parametrize("outputs", [(1, 14, 26), (2, 30, 58), (1, 29, 57), (0, 3, 9), (5, 6, 7)])
@pytest.mark.parametrize("num_layers", [30, 61, 94])
def test_sglang_captures_the_layers_that_the_draft_was_trained_on(
    target_type: str, outputs: tuple[int, ...], num_layers: int
) -> None:
    inputs = [layer + 1 for layer in outputs]
    if target_type in ("deepseek_v3", "kimi_k2") and inputs[0] == 1:
        with pytest.raises(ExportError, match="SGLang reads as 2"):
            sglang_layer_ids(inputs, num_layers, target_type)
        return
    told = sglang_layer_ids(inputs, num_layers, target_type)
    assert captured_by_sglang(told, num_layers, target_type) == inputs


def test_public_configurations_say_the_same_numbers() -> None:
    # SpecForge's for Qwen3-235B (94 layers) and DeepSeek-V3 (61): outputs, of the default inputs 2, n//2 and n-3.
    assert [layer + 1 for layer in (1, 46, 90)] == [2, 94 // 2, 94 - 3]
    assert sglang_layer_ids([2, 47, 91], 94, "qwen3_moe") is None
    assert sglang_layer_ids([2, 47, 90], 94, "qwen3_moe") == [1, 46, 89]
    assert sglang_layer_ids([2, 30, 57], 61, "deepseek_v3") == [1, 29, 56]
    # Kimi-K2.5 as the original system captured it.
    assert sglang_layer_ids([3, 31, 59], 61, "kimi_k2") == [3, 31, 59]


@pytest.mark.parametrize("ids", [(2, 15), (2, 15, 27, 30), (15, 2, 27), (2, 2, 27)])
def test_layers_that_servers_would_join_otherwise_are_refused(ids: tuple[int, ...]) -> None:
    with pytest.raises(ExportError, match="eagle_aux_hidden_state_layer_ids"):
        check_layers(ids)
