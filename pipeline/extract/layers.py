"""Which decoder layers to capture: defaults, parsing and checks, in output numbering.

Output numbering (`--layer-ids`): the state after decoder layer k, 0-based. Input numbering (vLLM and SGLang,
`eagle_aux_hidden_state_layer_ids`): the state that enters layer k. Output k is input k+1.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from pipeline.errors import SettingsError

_FEWEST_LAYERS = 4  # three auxiliary states and the last one


def default_layer_ids(num_layers: int) -> tuple[int, ...]:
    """The layers an EAGLE-3 draft is served by, and the last one.

    vLLM and SGLang serve inputs 2, n//2 and n-3 when told nothing, which are outputs 1, n//2-1 and n-4. In
    targets of fewer than 7 layers these coincide; they are moved apart so that there are always three.

    Args:
        num_layers: the target's number of decoder layers, n.

    Returns:
        Four strictly increasing output ids, the last being n-1.

    Raises:
        SettingsError: the target has fewer than 4 layers.
    """
    if num_layers < _FEWEST_LAYERS:
        raise SettingsError(
            f"the target has {num_layers} decoder layers, and three auxiliary layers plus the last need "
            f"{_FEWEST_LAYERS}: name the layers to capture with --layer-ids"
        )
    low = min(1, num_layers - _FEWEST_LAYERS)
    middle = max(num_layers // 2 - 1, low + 1)
    high = max(num_layers - 4, middle + 1)
    return low, middle, high, num_layers - 1


def parse_layer_ids(given: str | Iterable[str | int]) -> tuple[int, ...]:
    """Layer ids from a command line, separated by spaces, commas or both.

    Args:
        given: one text ("2,30 58") or its pieces (["2,", "30", 58]).

    Returns:
        The ids in the order given, unchecked.

    Raises:
        SettingsError: a piece is no whole number, or there is none.
    """
    text = given if isinstance(given, str) else " ".join(str(piece) for piece in given)
    words = [word for word in re.split(r"[\s,]+", text) if word]
    for word in words:
        if not re.fullmatch(r"[+-]?[0-9]{1,9}", word):
            raise SettingsError(
                f"--layer-ids: {word!r} is not a whole number; write for example --layer-ids 2 30 58 60"
            )
    if not words:
        raise SettingsError("--layer-ids is empty; write for example --layer-ids 2 30 58 60")
    return tuple(int(word) for word in words)


def check_layer_ids(ids: Sequence[int], num_layers: int) -> None:
    """Refuse layer ids that the target does not have or that a draft could not be served with.

    Serving concatenates the auxiliary states in layer order, whatever order a draft was trained with: ids out of
    order would train a draft on inputs it never sees again.

    Args:
        ids: output ids.
        num_layers: the target's number of decoder layers.

    Raises:
        SettingsError: no id, or one out of range, repeated or out of order.
    """
    if not ids:
        raise SettingsError("--layer-ids is empty; write for example --layer-ids 2 30 58 60")
    for layer in ids:
        if not 0 <= layer < num_layers:
            raise SettingsError(
                f"--layer-ids: layer {layer} does not exist, the target's {num_layers} layers are 0 to "
                f"{num_layers - 1} (the state after layer k, counted from 0)"
            )
    in_order = " ".join(str(layer) for layer in sorted(set(ids)))
    for before, layer in itertools.pairwise(ids):
        if ids.count(layer) > 1:
            raise SettingsError(f"--layer-ids: layer {layer} is named twice; write --layer-ids {in_order}")
        if layer <= before:
            raise SettingsError(
                f"--layer-ids: layer {layer} comes after {before}, and serving joins the states in layer order; "
                f"write --layer-ids {in_order}"
            )


def to_input_numbering(ids: Iterable[int]) -> tuple[int, ...]:
    """Output ids as the input ids that serving calls the same states by (output k is input k+1)."""
    return tuple(layer + 1 for layer in ids)
