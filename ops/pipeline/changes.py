"""Why a step runs: what of it is new, changed, gone or unfinished, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ops.pipeline.provenance import DONE, fingerprint

_UNSET = "not set"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a step runs, and what becomes of what is in its folder."""

    why: str
    """empty where nothing has changed"""
    aside: bool = False
    """what is there was made otherwise, and makes room"""


def judge(
    now: Mapping[str, Any],
    last: Mapping[str, Any] | None,
    outputs: Mapping[str, str | None],
    *,
    checks_itself: bool,
    forced: bool,
) -> Verdict:
    """Compare a step with what is written down of it.

    Args:
        now: what it would be made from.
        last: its record; None where there is none.
        outputs: the digests of what is there.
        checks_itself: its stage finds out itself what of another code's work is still right, and goes on with that.
        forced: the user wants it to run.
    """
    if forced:
        return Verdict(why="forced", aside=True)
    if last is None:
        # What may lie there, from a stage run by hand, is for the stage to judge, or nobody knows what it is.
        return Verdict(why="new", aside=not checks_itself)
    if last["fingerprint"] != fingerprint(now):
        told = differences(last["made_from"], now)
        return Verdict(why="; ".join(told), aside=not (checks_itself and _is_code_only(last["made_from"], now)))
    if last["status"] != DONE:
        return Verdict(why="was not finished")
    return _of_outputs(last["outputs"], outputs, heals=now["stage"] == "extract")


def differences(last: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Every setting and input that differs, settings with both values."""
    told = [] if last["stage"] == now["stage"] else [f"stage {last['stage']} -> {now['stage']}"]
    for name in sorted(last["settings"].keys() | now["settings"].keys()):
        old, new = (side["settings"].get(name, _UNSET) for side in (last, now))
        told += [f"{name} {_shown(old)} -> {_shown(new)}"] if old != new else []
    for name in sorted(last["inputs"].keys() | now["inputs"].keys()):
        told += [f"{name} changed"] if last["inputs"].get(name) != now["inputs"].get(name) else []
    told += ["the stack changed"] if last["stack"] != now["stack"] else []
    return told + (["the stage's code changed"] if last["code"] != now["code"] else [])


def _of_outputs(recorded: Mapping[str, str], found: Mapping[str, str | None], *, heals: bool) -> Verdict:
    missing = sorted(name for name, digest in found.items() if digest is None)
    altered = sorted(name for name, digest in found.items() if digest and digest != recorded.get(name))
    if altered:
        # A store's stage looks at every shard and does again what is not right.
        return Verdict(why=f"{', '.join(altered)} altered since", aside=not heals)
    if missing:
        return Verdict(why=f"{', '.join(missing)} missing or incomplete")
    return Verdict(why="")


def _is_code_only(last: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return {**last, "code": ""} == {**now, "code": ""}


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
