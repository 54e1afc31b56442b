"""The independent computation: plain transformers, one sample at a time, hooks on the decoder layers.

Hooks, because the last of transformers' own `output_hidden_states` is after the final norm and the captured state is
before it. A target in the shape of Kimi-K2.5 is a DeepSeek-V3 text model whose configuration is under `text_config` and
whose weights are under `language_model.`; transformers has the text model and not the whole.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from pipeline.errors import EngineError, InputError


class ReferenceModel:
    """A target in transformers: computes without gradients, where the model lies, and returns on the CPU."""

    def __init__(self, model_path: Path, dtype: str, *, trust_remote_code: bool = False) -> None:
        """Load the target: on the GPUs if there are any (spread over them), else on the CPU.

        Args:
            model_path: a checkpoint folder.
            dtype: "float32", "bfloat16" or "float16".
            trust_remote_code: run Python code that comes with the checkpoint.

        Raises:
            InputError: transformers cannot load it.
        """
        self._model = _load(model_path, getattr(torch, dtype), trust_remote_code=trust_remote_code)
        config = self._model.config.get_text_config()
        self.num_layers: int = config.num_hidden_layers
        self.hidden_size: int = config.hidden_size
        self.vocab_size: int = config.vocab_size
        self._layers = decoder_layers(self._model, self.num_layers)

    def states(self, input_ids: Sequence[int], layer_ids: Sequence[int]) -> torch.Tensor:
        """The states after some decoder layers.

        Args:
            input_ids: one sample's token ids.
            layer_ids: output ids.

        Returns:
            `[rows, layers, hidden]` in the model's dtype.
        """
        return self.states_and_logits(input_ids, layer_ids)[0]

    def logits(self, input_ids: Sequence[int]) -> torch.Tensor:
        """The model's own logits, `[rows, vocabulary]`."""
        return self._forward(input_ids)

    def states_and_logits(
        self, input_ids: Sequence[int], layer_ids: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Both of the above from one forward pass."""
        with _outputs_of([self._layers[layer] for layer in layer_ids]) as caught:
            logits = self._forward(input_ids)
        return torch.stack([caught[at][0].cpu() for at in range(len(layer_ids))], dim=1), logits

    def logits_from_last(self, last: torch.Tensor) -> torch.Tensor:
        """What the model predicts from given states after its last layer: its `lm_head(norm(last))`.

        The model's own code runs with every decoder layer returning these states, so that whatever an architecture does
        between its last layer and its logits (scaling, capping) is done, and the layers cost nothing.

        Args:
            last: `[rows, hidden]`.

        Returns:
            `[rows, vocabulary]` in the model's dtype.
        """
        with _returning(self._layers, last.to(self._model.dtype), in_tuple=self._layers_return_tuples):
            return self._forward([0] * len(last))

    def normed(self, last: torch.Tensor) -> torch.Tensor:
        """The final norm of given states after the last layer, `[rows, hidden]`: what enters the `lm_head`."""
        caught: list[torch.Tensor] = []
        handle = self._model.get_output_embeddings().register_forward_pre_hook(
            lambda _module, inputs: caught.append(inputs[0][0].cpu())
        )
        try:
            self.logits_from_last(last)
        finally:
            handle.remove()
        return caught[-1]

    @cached_property
    def _layers_return_tuples(self) -> bool:
        """Some architectures' layers return `(states,)`, others the states."""
        seen: list[bool] = []
        handle = self._layers[0].register_forward_hook(lambda _module, _in, out: seen.append(isinstance(out, tuple)))
        self._forward([0])
        handle.remove()
        return seen[0]

    @torch.inference_mode()
    def _forward(self, input_ids: Sequence[int]) -> torch.Tensor:
        batch = torch.tensor([list(input_ids)], device=self._model.get_input_embeddings().weight.device)
        logits: torch.Tensor = self._model(input_ids=batch, use_cache=False).logits[0].cpu()
        return logits


def decoder_layers(model: torch.nn.Module, num_layers: int) -> torch.nn.ModuleList:
    """The list of decoder layers: of all lists with that many modules the outermost (a layer may hold lists too).

    Raises:
        EngineError: there is none.
    """
    lists = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == num_layers
    }
    if not lists:
        raise EngineError(f"{type(model).__name__} has no list of {num_layers} decoder layers: verify cannot check it")
    return lists[min(lists, key=lambda name: name.count("."))]


def _load(folder: Path, dtype: torch.dtype, *, trust_remote_code: bool) -> PreTrainedModel:
    where: dict[str, Any] = {"dtype": dtype, "local_files_only": True}
    if torch.cuda.is_available():
        where["device_map"] = "auto"
    where["output_loading_info"] = True
    try:
        with _quiet():
            config = json.loads((folder / "config.json").read_bytes())
            if config.get("model_type") == "kimi_k25":
                text = DeepseekV3Config(**config["text_config"])
                renamed = {r"^language_model\.": ""}
                model, told = _KimiTextModel.from_pretrained(folder, config=text, key_mapping=renamed, **where)
            else:
                known = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code, local_files_only=True)
                model, told = AutoModelForCausalLM.from_pretrained(
                    folder, config=known, trust_remote_code=trust_remote_code, **where
                )
    except (OSError, ValueError, KeyError, TypeError, ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"transformers cannot load the target at {folder}: {type(error).__name__}: {reason}"
        ) from error
    if told["missing_keys"]:  # transformers would compute with random ones
        raise InputError(
            f"the target at {folder} lacks {len(told['missing_keys'])} weights, such as {min(told['missing_keys'])!r}: "
            "it is incomplete, or in a form that transformers cannot read"
        )
    return model.eval()


class _KimiTextModel(DeepseekV3ForCausalLM):
    """Kimi-K2.5's text model."""

    # With a prefix, transformers looks for it in the names as they are in the file and not as they are renamed.
    base_model_prefix = ""


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars and its warning about the vision weights that a text model leaves out."""
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.ERROR)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        transformers_logging.enable_progress_bar()


@contextmanager
def _outputs_of(layers: Sequence[torch.nn.Module]) -> Iterator[dict[int, torch.Tensor]]:
    """Catches the outputs `[1, rows, hidden]` of layers while it is open, by their position in the argument."""
    caught: dict[int, torch.Tensor] = {}

    def catch(at: int) -> Any:
        def hook(_module: torch.nn.Module, _inputs: Any, output: Any) -> None:
            caught[at] = output[0] if isinstance(output, tuple) else output

        return hook

    with ExitStack() as hooks:
        for at, layer in enumerate(layers):
            hooks.callback(layer.register_forward_hook(catch(at)).remove)
        yield caught


@contextmanager
def _returning(layers: Sequence[torch.nn.Module], states: torch.Tensor, *, in_tuple: bool) -> Iterator[None]:
    """While it is open, layers do nothing and return `[rows, hidden]` states, whatever they are given."""

    def forward(hidden_states: torch.Tensor, *_args: Any, **_kwargs: Any) -> Any:
        batch = states.to(hidden_states.device).unsqueeze(0)
        return (batch,) if in_tuple else batch

    before = [layer.__dict__.get("forward") for layer in layers]  # accelerate puts its own there
    for layer in layers:
        layer.__dict__["forward"] = forward
    try:
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            if own is None:
                del layer.__dict__["forward"]
            else:
                layer.__dict__["forward"] = own
