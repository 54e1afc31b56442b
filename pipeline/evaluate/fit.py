"""Whether a draft can be served with a target, found out before an engine starts.

What is asked for is what vllm/model_executor/models/llama_eagle3.py (0.32) builds from the config, and what it would
get wrong without a word: layer ids in another order than ascending are sorted (interfaces.py,
`_set_aux_hidden_state_layers`), and a `d2t` that points beyond the vocabulary indexes past the logits.
"""

from __future__ import annotations

from pipeline.errors import FitError
from pipeline.evaluate.draft import LAYER_IDS, WEIGHTS, Draft
from pipeline.extract.target import Target

_DEFAULT_LAYERS = 3


def check_fit(draft: Draft, target: Target) -> None:
    """Refuse a draft that does not fit its target or its own config.

    Raises:
        FitError: names the field and both values.
    """
    for name, ours, theirs in (
        ("vocab_size", draft.vocab_size, target.vocab_size),
        ("target_hidden_size", draft.target_hidden_size, target.hidden_size),
    ):
        if ours != theirs:
            raise FitError(
                f"{name} is {ours} in the draft {draft.folder} and {theirs} in the target {target.folder}: give the "
                "target that the draft was trained for"
            )
    _check_layers(draft, target)
    _check_shapes(draft)
    if draft.draft_vocab_size != draft.vocab_size:
        _check_vocabulary(draft)


def _check_layers(draft: Draft, target: Target) -> None:
    ids = draft.layer_ids
    if ids is None:
        return
    outside = [layer for layer in ids if not 0 <= layer <= target.num_layers]
    if outside:
        raise FitError(
            f"{LAYER_IDS} of the draft {draft.folder} has {outside[0]} and the target {target.folder} has "
            f"{target.num_layers} layers, whose states are 0 to {target.num_layers}: give the draft's own target"
        )
    if list(ids) != sorted(set(ids)):
        raise FitError(
            f"{LAYER_IDS} of the draft {draft.folder} is {list(ids)}: serving gives states in ascending order, each "
            "once, so the draft would read other layers than it was trained on"
        )


def _check_shapes(draft: Draft) -> None:
    hidden, layers = draft.hidden_size, len(draft.layer_ids or ()) or _DEFAULT_LAYERS
    wanted: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, layers * draft.target_hidden_size),
        "norm.weight": (hidden,),
        "layers.0.hidden_norm.weight": (hidden,),
        "lm_head.weight": (draft.draft_vocab_size, hidden),
    }
    optional = {"embed_tokens.weight": (draft.vocab_size, hidden), "t2d": (draft.vocab_size,)}
    if draft.draft_vocab_size != draft.vocab_size:
        wanted["d2t"] = (draft.draft_vocab_size,)
    for name, shape in (wanted | optional).items():
        there = draft.shapes.get(name)
        if there is None and name in wanted:
            raise FitError(f"{name} is missing from {draft.folder / WEIGHTS}: its config asks for {list(shape)}")
        if there is not None and there != shape:
            raise FitError(
                f"{name} is {list(there)} in {draft.folder / WEIGHTS} and its config asks for {list(shape)}: give a "
                "whole checkpoint"
            )


def _check_vocabulary(draft: Draft) -> None:
    """`d2t[i]` is the target's id of draft id i, less i; `t2d` says which of the target's ids have a draft id."""
    from safetensors import safe_open  # with numpy: no torch is needed to read two small tensors

    with safe_open(str(draft.folder / WEIGHTS), "np") as weights:
        names = set(weights.keys())
        d2t = weights.get_tensor("d2t").astype("int64")
        t2d = weights.get_tensor("t2d") if "t2d" in names else None
    ids = (d2t + range(len(d2t))).tolist()
    outside = [token for token in ids if not 0 <= token < draft.vocab_size]
    if outside:
        raise FitError(
            f"d2t in {draft.folder / WEIGHTS} gives the target's id {outside[0]}, and vocab_size is "
            f"{draft.vocab_size}: the vocabulary map is another target's, or damaged"
        )
    if len(set(ids)) != len(ids):
        raise FitError(f"d2t in {draft.folder / WEIGHTS} gives a target's id twice: the vocabulary map is damaged")
    if t2d is not None and set(t2d.nonzero()[0].tolist()) != set(ids):
        raise FitError(f"t2d and d2t in {draft.folder / WEIGHTS} name different tokens: the map is of two trainings")
