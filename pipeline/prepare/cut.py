"""A masked text to samples within a limit of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.prepare.rejection import Rejection
from pipeline.prepare.settings import Truncate

Stretch = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """What of a text becomes a sample: tokens from `start` to `stop`, trained from `trains_from` on."""

    start: int
    stop: int
    trains_from: int = 0


def windows(loss_mask: Sequence[int], limit: int, how: Truncate) -> list[Window]:
    """Cut a text.

    Args:
        loss_mask: of the whole text.
        limit: most tokens of a sample.
        how: see `Settings.truncate`.

    Returns:
        At least one window, none without a trained token.

    Raises:
        Rejection: it is over the limit and to be rejected, or no trained token is left.
    """
    length = len(loss_mask)
    if 1 not in loss_mask:
        raise Rejection("no-trained-token", "none of its tokens lies inside an answer")
    if length <= limit:
        return [Window(0, length)]
    if how == "reject":
        raise Rejection("too-long", f"{length:,} tokens, the limit is {limit:,}")
    if how == "split-turns":
        return list(_by_turns(_turns(loss_mask), limit))
    window = Window(0, limit) if how == "right" else Window(length - limit, length)
    if 1 not in loss_mask[window.start : window.stop]:
        what = "first" if how == "right" else "last"
        place = loss_mask.index(1) + 1 if how == "right" else length - list(reversed(loss_mask)).index(1)
        raise Rejection("answer-beyond-limit", f"its {what} trained token is number {place}, the limit is {limit}")
    return [window]


def _turns(loss_mask: Sequence[int]) -> list[Stretch]:
    """Where trained turns begin and end. Two with nothing between them are one."""
    padded = [0, *loss_mask, 0]
    edges = [at for at in range(len(padded) - 1) if padded[at] != padded[at + 1]]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _by_turns(turns: list[Stretch], limit: int) -> Iterator[Window]:
    """Windows that end with a turn, begin behind one or at the text's begin, and hold as many turns as may be."""
    done = 0
    while done < len(turns):
        begin, end = turns[done]
        starts = [0, *(stop for _, stop in turns[:done])]
        # The furthest begin from which this turn still fits; if from none, the nearest, and the turn is cut.
        fitting = [start for start in starts if end - start <= limit]
        start = min(fitting) if fitting else starts[-1]
        if begin - start >= limit:
            # Not even its first token: what asks for it is too long. A sample without that would not be what was asked.
            done += 1
            continue
        last = max((number for number in range(done, len(turns)) if turns[number][1] - start <= limit), default=done)
        yield Window(start, min(turns[last][1], start + limit), begin)
        done = last + 1
