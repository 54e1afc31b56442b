"""One turn of `bench.prepare` in a process of its own: what is measured beside this project's own command.

* bare: the tokenizer's batch call on texts that are rendered already, ids read out; nothing is rendered, masked or
  written. With as many threads as the command has workers.
* speculators: speculators 0.3.0's own preparation, from the same file to its Arrow table, with as many processes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

BATCH = 1000


def main(argv: list[str]) -> int:
    """Measure and print seconds and tokens as one line of JSON."""
    flags = argparse.ArgumentParser(prog="python -m bench.prepare_turn")
    flags.add_argument("--way", choices=("bare", "speculators"), required=True)
    flags.add_argument("--input", type=Path, required=True)
    flags.add_argument("--model-path", type=Path, required=True)
    flags.add_argument("--work", type=Path, required=True)
    flags.add_argument("--rows", type=int, required=True)
    flags.add_argument("--workers", type=int, required=True)
    given = flags.parse_args(argv)
    print(json.dumps((bare if given.way == "bare" else speculators)(given)))
    return 0


def bare(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds of the tokenizer alone."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(given.model_path)
    backend = tokenizer.backend_tokenizer
    seconds, tokens = 0.0, 0
    with given.input.open("rb") as file:
        lines = itertools.islice(file, given.rows)
        while batch := list(itertools.islice(lines, BATCH)):
            texts = tokenizer.apply_chat_template([_messages(line) for line in batch], tokenize=False)
            start = time.perf_counter()
            ids = [one.ids for one in backend.encode_batch(texts, add_special_tokens=False)]
            seconds += time.perf_counter() - start
            tokens += sum(map(len, ids))
    return {"seconds": seconds, "tokens": tokens, "rows": given.rows}


def speculators(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds from the file to the data set that speculators trains on."""
    from speculators.data_generation.preprocessing import build_eagle3_dataset, load_raw_dataset
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(given.model_path)
    start = time.perf_counter()
    raw = load_raw_dataset(str(given.input), num_proc=None, cache_dir=str(given.work / "cache"))
    made = build_eagle3_dataset(raw, tokenizer, max_length=2048, num_proc=given.workers)
    return {"seconds": time.perf_counter() - start, "tokens": None, "rows": len(made)}


def _messages(line: bytes) -> list[dict[str, str]]:
    roles = {"human": "user", "gpt": "assistant"}
    return [{"role": roles[turn["from"]], "content": turn["value"]} for turn in json.loads(line)["conversations"]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
