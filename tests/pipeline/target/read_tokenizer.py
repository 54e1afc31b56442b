"""Run as a program with one version of transformers: what its tokenizer makes of texts, ids and conversations.

`python read_tokenizer.py FOLDER < request.json`. The request has `texts`, `ids` and `conversations`, each a list.
"""

from __future__ import annotations

import json
import sys

if __name__ == "__main__":
    import transformers

    request = json.load(sys.stdin)
    tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1], local_files_only=True)
    answer = {
        "version": transformers.__version__,
        "encoded": [tokenizer(text)["input_ids"] for text in request["texts"]],
        "decoded": [tokenizer.decode(ids) for ids in request["ids"]],
        "rendered": [
            [
                tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=asking)
                for asking in (False, True)
            ]
            for conversation in request["conversations"]
        ],
        "special_ids": {
            name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id")
        },
        "size": len(tokenizer),
    }
    json.dump(answer, sys.stdout)
