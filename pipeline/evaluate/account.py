"""How many tokens were drafted and accepted, counted in ways that must agree.

The identity, for one answer: its first token comes from the prefill; every verification step gives one token of the
target's own and the draft tokens accepted before it; what goes past the end of the answer (in its last step, where it
ends at `max_new_tokens` or at an end-of-turn token) was computed and counted as accepted, and is cut. So

    tokens = 1 + sum over its steps of (1 + accepted) - cut,      0 <= cut <= accepted in the last step.

Every step after the prefill is drafted for, because the engine allows lengths that no answer here reaches. Acceptance
length is 1 + accepted / drafts, as in vllm/v1/spec_decode/metrics.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.errors import AccountError


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What an engine gave for one prompt."""

    id: str
    token_ids: list[int]
    """its end-of-turn token included"""
    finish: str
    """"stop" or "length\""""
    seconds: float
    """from its first token to its last"""
    accepted: list[int] | None
    """draft tokens accepted, per verification step; None without a draft"""


@dataclass(frozen=True, kw_only=True)
class Counters:
    """The engine's own counters over all prompts, the warm-up's subtracted."""

    steps: int
    """engine steps, those of prefills included"""
    generated: int
    """output tokens"""
    drafts: int = 0
    """verification steps, over all requests"""
    draft_tokens: int = 0
    accepted: int = 0
    accepted_per_position: tuple[int, ...] = ()

    @property
    def acceptance_length(self) -> float:
        """Tokens a verification step gives."""
        return 1 + self.accepted / self.drafts if self.drafts else 1.0


@dataclass(frozen=True, kw_only=True)
class Account:
    """The closed account of an engine with a draft."""

    first_tokens: int
    """one an answer, from the prefills"""
    cut: int
    """accepted tokens past the ends of answers"""
    acceptance_length_from_steps: float | None
    """from output tokens and engine steps, the cut tokens added; None where prompts shared steps"""


def close_account(answers: Sequence[Answer], counters: Counters, batch_size: int) -> Account:
    """Check that tokens, steps and accepted draft tokens add up.

    Args:
        answers: of an engine with a draft.
        counters: of the same engine.
        batch_size: prompts in flight.

    Raises:
        AccountError: they do not; names the answer or the count.
    """
    steps = {answer.id: answer.accepted or [] for answer in answers}
    cut = sum(_cut(answer, steps[answer.id]) for answer in answers)
    _same("verification steps", sum(map(len, steps.values())), counters.drafts)
    _same("accepted draft tokens", sum(map(sum, steps.values())), counters.accepted)
    for position, count in enumerate(counters.accepted_per_position):
        there = sum(accepted > position for some in steps.values() for accepted in some)
        _same(f"draft tokens accepted at position {position + 1}", there, count)
    _same("output tokens", sum(len(answer.token_ids) for answer in answers), counters.generated)
    from_steps = None
    if batch_size == 1:
        decoding = counters.steps - len(answers)
        _same("engine steps after the prefills", sum(map(len, steps.values())), decoding)
        from_steps = (counters.generated + cut - len(answers)) / decoding if decoding else 1.0
    return Account(first_tokens=len(answers), cut=cut, acceptance_length_from_steps=from_steps)


def _cut(answer: Answer, accepted: list[int]) -> int:
    over = 1 + sum(1 + count for count in accepted) - len(answer.token_ids)
    if not 0 <= over <= (accepted[-1] if accepted else 0):
        raise AccountError(
            f"answer {answer.id}: {len(answer.token_ids)} tokens, and its prefill, {len(accepted)} verification steps "
            f"and {sum(accepted)} accepted draft tokens give {over} more, of which its last step may have been cut"
        )
    return over


def _same(what: str, from_answers: int, from_engine: int) -> None:
    if from_answers != from_engine:
        raise AccountError(f"{what}: {from_answers:,} in the answers and {from_engine:,} in the engine's counters")
