"""`python -m pipeline STAGE`: finds the stage, runs it, and turns a user's error into one line and an exit code."""

from __future__ import annotations

import importlib
import sys

from pipeline.errors import UserError

STAGES = {
    "target": "materialise the demo target as a checkpoint",
    "regenerate": "the target's own answers to prompts, as conversations",
    "prepare": "conversations to tokenized samples with loss masks",
    "extract": "hidden states of tokenized samples, from the target into a store",
    "verify": "check a store: checksums, counts, and against an independent computation",
    "store": "merge, split and prune stores, and say what is in one",
    "train": "an EAGLE-3 draft out of a store",
    "estimate": "the acceptance length a draft will have, from a held-out store",
    "evaluate": "serve a target with and without drafts, and measure what each draft is worth",
    "export": "a draft in the forms that vLLM and SGLang load, with a model card",
}


def main(argv: list[str]) -> int:
    """Run one stage.

    Args:
        argv: the stage's name and its flags.

    Returns:
        The process's exit code; 130 after Ctrl-C.
    """
    if not argv or argv[0] not in STAGES:
        lines = "\n".join(f"  {name:<10} {what}" for name, what in STAGES.items())
        asked_for_help = bool(argv) and argv[0] in {"-h", "--help"}
        print(f"usage: python -m pipeline STAGE [flags]\n\n{lines}", file=sys.stdout if asked_for_help else sys.stderr)
        return 0 if asked_for_help else 2
    stage = importlib.import_module(f"pipeline.{argv[0]}.command")
    try:
        return int(stage.main(argv[1:]) or 0)
    except UserError as error:
        print(f"eyas: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("eyas: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
