"""The flags of the `evaluate` stage, checked before anything expensive starts."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import SettingsError

NO_DRAFT = "no draft"
"""the name that the target alone goes by, in tables and files"""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings:
    """What to serve, on which prompts, and how."""

    model_path: Path
    drafts: dict[str, Path]
    """name: folder, in the order given"""
    input: Path
    output_dir: Path
    num_speculative_tokens: int
    """draft tokens a step"""
    max_new_tokens: int
    limit: int | None
    """prompts to take from the input's beginning; None: all"""
    batch_size: int
    """most prompts in flight"""
    dtype: str
    tp_size: int
    estimates: tuple[Path, ...]
    """reports of the estimate stage"""
    trust_remote_code: bool


def parse(argv: Sequence[str]) -> EvaluateSettings:
    """The settings a command line gives.

    Args:
        argv: the flags, without the stage's name.

    Raises:
        SettingsError: a value out of its range, or two drafts of one name.
        SystemExit: with 2 for an unknown flag or a malformed value, with 0 after --help.
    """
    flags = _parser().parse_args(argv)
    for name in ("num_speculative_tokens", "max_new_tokens", "batch_size", "tp_size"):
        if getattr(flags, name) < 1:
            raise SettingsError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(flags, name)}")
    if flags.limit is not None and flags.limit < 1:
        raise SettingsError(f"--limit must be at least 1, not {flags.limit}")
    given = vars(flags)
    return EvaluateSettings(drafts=_drafts(given.pop("draft")), estimates=tuple(given.pop("estimate") or ()), **given)


def _drafts(given: list[str]) -> dict[str, Path]:
    drafts: dict[str, Path] = {}
    for text in given:
        name, found, folder = text.partition("=")
        if not (found and folder and _NAME.fullmatch(name)):
            raise SettingsError(
                f"--draft {text}: give NAME=FOLDER, the name of letters, digits, dots, dashes and underscores"
            )
        if name in drafts:
            raise SettingsError(f"--draft {name} is given twice: give each draft a name of its own")
        drafts[name] = Path(folder)
    return drafts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline evaluate",
        description="Serve a target with and without drafts in vLLM and measure what each draft is worth.",
        allow_abbrev=False,
    )
    add, default = parser.add_argument, " (default: %(default)s)"
    add("--model-path", type=Path, required=True, help="the target's folder")
    add(
        "--draft",
        action="append",
        required=True,
        metavar="NAME=FOLDER",
        help="a draft's folder, and what to call it in the report; repeatable",
    )
    add("--input", type=Path, required=True, help='held-out prompts, JSONL: {"id", "messages"} or {"prompt"}')
    add("--output-dir", type=Path, required=True, help="where evaluation.json, evaluation.txt and answers.jsonl go")
    add("--num-speculative-tokens", type=int, default=3, help="draft tokens a step" + default)
    add("--max-new-tokens", type=int, default=256, help="longest answer, in tokens" + default)
    add("--limit", type=int, metavar="N", help="use the first N prompts only")
    add("--batch-size", type=int, default=1, help="most prompts in flight" + default)
    dtypes = ("auto", "bfloat16", "float16", "float32")
    add("--dtype", choices=dtypes, default="auto", help="what all compute in; auto: the checkpoint's own" + default)
    add("--tp-size", type=int, default=1, help="over how many devices the target is split" + default)
    estimate = "a report of the estimate stage, to compare with what is served; repeatable"
    add("--estimate", type=Path, action="append", metavar="FILE", help=estimate)
    add("--trust-remote-code", action="store_true", help="run Python code that comes with the target")
    return parser
