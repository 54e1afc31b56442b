"""Which of the target's states a server feeds the draft, in the number that each server reads.

One state has two numbers (docs/architecture.md), and servers do not agree. vLLM 0.32 takes
`eagle_aux_hidden_state_layer_ids` at the top of config.json, else inside `eagle_config`, as input numbers
(`GPUModelRunner._get_eagle3_aux_layers_from_config`). SGLang looks only inside `eagle_config`, and adds one to what it
finds: for most targets always (`set_eagle3_layers_to_capture`), so that these are output numbers; for the DeepSeek
family only if the first is 1 (its pull request 25454); for gpt-oss never (32334). So each finds its own number at its
own place. Without a number both take inputs 2, n//2 and n-3.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.errors import ExportError

ADDS_ONE_AFTER_1 = frozenset({"deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25"})
ADDS_NOTHING = frozenset({"gpt_oss"})


def check_layers(layer_ids: Sequence[int]) -> None:
    """Refuse layers that no server could feed as the draft was trained.

    Raises:
        ExportError: not three, or out of order. Servers join the states in the target's order, whatever the order
            here (vLLM sorts them), and size the draft's first matrix for three.
    """
    if len(layer_ids) != 3:
        raise ExportError(f"eagle_aux_hidden_state_layer_ids is {list(layer_ids)}: servers make place for three layers")
    if sorted(set(layer_ids)) != list(layer_ids):
        raise ExportError(
            f"eagle_aux_hidden_state_layer_ids is {list(layer_ids)}: servers join the states in order of the layers, "
            "so a draft trained in another order reads the wrong ones"
        )


def sglang_layer_ids(layer_ids: Sequence[int], num_layers: int, target_type: str) -> list[int] | None:
    """What SGLang must find in `eagle_config` to capture these layers.

    Args:
        layer_ids: three, in input numbering.
        num_layers: the target's decoder layers, n.
        target_type: `model_type` of the target's (text) config.

    Returns:
        The numbers; None where it must find none, because these are its default.

    Raises:
        ExportError: there are no such numbers.
    """
    if list(layer_ids) == [2, num_layers // 2, num_layers - 3]:
        return None
    outputs = [layer - 1 for layer in layer_ids]
    if target_type in ADDS_NOTHING:
        return list(layer_ids)
    if target_type not in ADDS_ONE_AFTER_1 or outputs[0] == 1:
        return outputs
    if layer_ids[0] == 1:
        raise ExportError(
            f"eagle_aux_hidden_state_layer_ids {list(layer_ids)} begins with 1, which SGLang reads as 2 for a target "
            f"of type {target_type}: export with --format speculators"
        )
    return list(layer_ids)
