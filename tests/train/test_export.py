"""What an export holds: both forms compute what the checkpoint does, and are what public loaders read."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.export.command import main
from tests.train import plain_eagle3, tiny_drafts
from tests.train.tiny_drafts import HIDDEN, INPUTS, VOCAB, Sample

ROWS = 17


class Exported:
    def __init__(self, folder: Path, *flags: str, **config: Any) -> None:
        self.target_folder, self.checkpoint, self.output = folder / "target", folder / "draft", folder / "out"
        self.target = tiny_drafts.make_target(self.target_folder)
        self.model = tiny_drafts.make_draft(self.checkpoint, self.target_folder, **config)
        self.arguments = ["--draft", str(self.checkpoint), "--model-path", str(self.target_folder)]
        self.arguments += ["--output-dir", str(self.output)]
        self.run(*flags)

    def run(self, *flags: str) -> int:
        return main([*self.arguments, *flags])

    def header(self, form: str) -> dict[str, Any]:
        """A safetensors header, parsed by hand: dtypes and shapes as they are in the file."""
        with (self.output / form / "model.safetensors").open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(size))
        assert header.pop("__metadata__") == {"format": "pt"}
        return header


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(tmp_path_factory.mktemp("float32"), "--dtype", "float32")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(tmp_path_factory.mktemp("bfloat16"))


@pytest.mark.parametrize("form", ["speculators", "eagle3"])
def test_both_forms_compute_the_checkpoints_logits(exact: Exported, form: str) -> None:
    random = torch.Generator().manual_seed(3)
    states = torch.randn(ROWS, 3 * HIDDEN, generator=random)
    ids = torch.randint(VOCAB, (ROWS,), generator=random)
    heard = list[torch.Tensor]()
    exact.model.lm_head.register_forward_hook(lambda _m, _i, out: heard.append(out[0]))
    exact.model(
        hidden_states=states[None],
        input_ids=ids[None],
        document_ids=torch.zeros(1, ROWS, dtype=torch.long),
        ttt_steps=1,
    )
    config, weights = plain_eagle3.read(exact.output / form)
    embeds = weights.get("embed_tokens.weight", exact.target.model.embed_tokens.weight)[ids]
    hidden = plain_eagle3.layer(config, weights, embeds, plain_eagle3.fuse(weights, states))
    computed = plain_eagle3.logits(config, weights, hidden)
    assert heard[0].std() > 0.1  # logits that say something
    torch.testing.assert_close(computed, heard[0], atol=1e-5, rtol=0)


def test_the_public_form_has_the_tensors_of_public_checkpoints(exported: Exported) -> None:
    # The names, dtypes and axes that docs/export.md lists with their sources, with this draft's sizes.
    kinds = {name: (entry["dtype"], entry["shape"]) for name, entry in exported.header("eagle3").items()}
    assert kinds == {
        "d2t": ("I64", [12]),
        "fc.weight": ("BF16", [32, 96]),
        "lm_head.weight": ("BF16", [12, 32]),
        "midlayer.hidden_norm.weight": ("BF16", [32]),
        "midlayer.input_layernorm.weight": ("BF16", [32]),
        "midlayer.mlp.down_proj.weight": ("BF16", [32, 48]),
        "midlayer.mlp.gate_proj.weight": ("BF16", [48, 32]),
        "midlayer.mlp.up_proj.weight": ("BF16", [48, 32]),
        "midlayer.post_attention_layernorm.weight": ("BF16", [32]),
        "midlayer.self_attn.k_proj.weight": ("BF16", [16, 64]),
        "midlayer.self_attn.o_proj.weight": ("BF16", [32, 32]),
        "midlayer.self_attn.q_proj.weight": ("BF16", [32, 64]),
        "midlayer.self_attn.v_proj.weight": ("BF16", [16, 64]),
        "norm.weight": ("BF16", [32]),
        "t2d": ("BOOL", [24]),
    }


def test_speculators_form_keeps_speculators_names(exported: Exported) -> None:
    names = set(exported.header("speculators"))
    public = {name.replace("midlayer.", "layers.0.") for name in exported.header("eagle3")}
    assert names == public | {"embed_tokens.weight"}


def test_the_settings_of_the_public_form_are_the_drafts(exported: Exported) -> None:
    config = tiny_drafts.settings(exported.output / "eagle3")
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["model_type"] == "llama"
    assert (config["vocab_size"], config["draft_vocab_size"]) == (24, 12)
    assert (config["hidden_size"], config["intermediate_size"], config["head_dim"]) == (32, 48, 8)
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["num_hidden_layers"]) == (4, 2, 1)
    assert (config["rope_theta"], config["rope_scaling"]) == (5000.0, None)
    assert (config["tie_word_embeddings"], config["torch_dtype"]) == (False, "bfloat16")
    assert config["eagle_aux_hidden_state_layer_ids"] == INPUTS
    # The default of 6 layers would be inputs 2, 3, 3: SGLang adds one to what it finds for a Llama.
    assert config["eagle_config"] == {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [1, 2, 3]}


def test_transformers_reads_the_public_settings_as_a_llamas(exported: Exported) -> None:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(exported.output / "eagle3")
    assert (type(config).__name__, config.rope_parameters["rope_theta"]) == ("LlamaConfig", 5000.0)


def test_speculators_settings_say_everything_that_vllm_reads(exported: Exported) -> None:
    config = tiny_drafts.settings(exported.output / "speculators")
    assert config["speculators_model_type"] == "eagle3"
    assert config["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 3
    assert config["speculators_config"]["verifier"]["name_or_path"] == "target"
    assert config["eagle_aux_hidden_state_layer_ids"] == INPUTS
    assert config["norm_before_residual"] is False  # vLLM takes a missing one for true
    assert "auto_map" not in config


def test_nothing_of_this_machine_is_in_an_export(exported: Exported) -> None:
    for file in exported.output.glob("*/*"):
        assert str(exported.target_folder.parent).encode() not in file.read_bytes(), file


def test_a_hub_name_for_the_target_goes_into_config_and_card(tmp_path: Path) -> None:
    made = Exported(tmp_path, "--verifier-name", "owner/target-7b", "--format", "speculators")
    config = tiny_drafts.settings(made.output / "speculators")
    assert config["speculators_config"]["verifier"]["name_or_path"] == "owner/target-7b"
    card = (made.output / "speculators" / "README.md").read_text()
    assert 'base_model: "owner/target-7b"' in card
    assert "vllm serve owner/target-7b --speculative-config" in card
    assert not (made.output / "eagle3").exists()


def test_speculators_reads_its_form_again(exported: Exported) -> None:
    from speculators import SpeculatorModelConfig

    from pipeline.export.draft import read_draft

    config = SpeculatorModelConfig.from_pretrained(exported.output / "speculators")
    assert type(config).__name__ == "Eagle3SpeculatorConfig"
    again, before = read_draft(exported.output / "speculators").model(), exported.model
    for name, weight in before.state_dict().items():
        if not name.startswith("verifier_") and weight.is_floating_point():
            assert torch.equal(again.state_dict()[name], weight.bfloat16().float()), name


def test_a_draft_of_the_whole_vocabulary_has_no_map(tmp_path: Path) -> None:
    made = Exported(tmp_path, full_vocabulary=True)
    assert not {"d2t", "t2d"} & (set(made.header("eagle3")) | set(made.header("speculators")))
    assert tiny_drafts.settings(made.output / "eagle3")["draft_vocab_size"] == VOCAB


def test_the_card_tells_data_training_and_acceptance(exported: Exported, tmp_path: Path) -> None:
    # Trained tokens 1, 2, 4: the draft has 1 and 2 of them.
    samples = [Sample("one", [3, 1, 2, 4, 5], [0, 1, 1, 1, 0])]
    store = tiny_drafts.make_store(tmp_path / "store", exported.target, exported.target_folder, samples)
    report = tmp_path / "report.json"
    report.write_text(
        json.dumps({"settings": {"lr": 0.001, "store": "/data/store", "seed": None}, "stack": {"digest": "5" * 64}})
    )
    (tmp_path / "evaluation.json").write_text("{}")
    (tmp_path / "evaluation.txt").write_text("best  2.01\n")
    given = ["--store", str(store), "--train-report", str(report), "--evaluation", str(tmp_path / "evaluation.json")]
    assert exported.run(*given, "--overwrite") == 0
    manifest = json.loads((store / "manifest.json").read_text())
    for form in ("speculators", "eagle3"):
        card = (exported.output / form / "README.md").read_text()
        assert card.startswith("---\n# license: yours to choose")
        assert "12 of the target's 24 tokens: 66.67% of the tokens" in card
        for digest in (manifest["store_digest"], *manifest["digests"].values(), "5" * 64):
            assert (digest in card) == (digest != "p" * 64)  # all but the plan's
        assert "| `lr` | 0.001 |" in card
        assert "/data" not in card
        assert "```\nbest  2.01\n```" in card
        assert '"num_speculative_tokens": 3}' in card
    assert ("sglang" in (exported.output / "eagle3" / "README.md").read_text()) is True
    assert ("sglang" in (exported.output / "speculators" / "README.md").read_text()) is False
