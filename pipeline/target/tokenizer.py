"""The demo target's tokenizer, built from what the GGUF file itself says.

transformers 4.57's own conversion of this file is not used, because it is wrong in four ways: it leaves out the
splitting of digits that the pre-tokenizer `smollm` means, puts `<|im_start|>` in front of every text although
the file says `add_bos_token = False`, names `<|im_start|>` as end of sequence, and saves itself as a
`LlamaTokenizer`. transformers 5 rebuilds that class with a SentencePiece decoder, and `Ġ` shows in the text. A
`PreTrainedTokenizerFast` is taken by both versions as `tokenizer.json` says, with nothing rebuilt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gguf import GGUFReader
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

CONTROL = 3  # gguf.TokenType.CONTROL: a token that text alone never makes


def build_tokenizer(reader: GGUFReader) -> PreTrainedTokenizerFast:
    """Build the tokenizer with its chat template, ready for `save_pretrained`.

    Args:
        reader: the open GGUF file, of tokenizer model `gpt2` and pre-tokenizer `smollm`.

    Returns:
        A fast tokenizer that adds no token of its own and writes no class name that a version could rebuild.
    """
    from transformers import PreTrainedTokenizerFast

    tokens = _field(reader, "tokens")
    untyped: Any = PreTrainedTokenizerFast
    tokenizer: PreTrainedTokenizerFast = untyped(
        tokenizer_object=_byte_level_bpe(reader, tokens),
        bos_token=tokens[_field(reader, "bos_token_id")],
        eos_token=tokens[_field(reader, "eos_token_id")],
        unk_token=tokens[_field(reader, "unknown_token_id")],
        pad_token=tokens[_field(reader, "padding_token_id")],
        chat_template=reader.fields["tokenizer.chat_template"].contents(),
        model_max_length=int(reader.fields["llama.context_length"].contents()),
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],  # Llama refuses the token types that are made by default
    )
    return tokenizer


def _byte_level_bpe(reader: GGUFReader, tokens: list[str]) -> Tokenizer:
    r"""Byte-level BPE of the pre-tokenizer `smollm`: every digit alone, then GPT-2's split.

    llama.cpp, which defines that name (`LLAMA_VOCAB_PRE_TYPE_SMOLLM`), splits by `\p{N}` first and by GPT-2's regular
    expression second.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    merges = [tuple(merge.split(" ")) for merge in _field(reader, "merges")]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = _field(reader, "token_type")
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return tokenizer


def _field(reader: GGUFReader, name: str) -> Any:
    return reader.fields[f"tokenizer.ggml.{name}"].contents()
