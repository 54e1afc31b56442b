"""Reports of the estimate stage, beside what was served."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import InputError, SettingsError
from pipeline.evaluate.draft import Draft


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """An offline estimate beside a served figure."""

    estimated: float
    """acceptance length"""
    served: float
    file: Path

    @property
    def percent(self) -> float:
        """How far the estimate is above (or, negative, below) what was served."""
        return 100 * (self.estimated / self.served - 1)


def read_estimates(
    files: Sequence[Path], drafts: Mapping[str, Draft], num_speculative_tokens: int
) -> dict[str, tuple[Path, float]]:
    """Estimates by the name of the draft they are of.

    A report names its draft by the sha256 of the weights, and by folder where it has none.

    Args:
        files: `estimate.json` files.
        drafts: by name.
        num_speculative_tokens: of this run.

    Returns:
        By draft: the file, and the acceptance length in it.

    Raises:
        InputError: a file is no such report.
        SettingsError: a report is of none of the drafts, or of another number of draft tokens.
    """
    found: dict[str, tuple[Path, float]] = {}
    for file in files:
        report = _read(file)
        tokens = report["num_speculative_tokens"]
        if tokens != num_speculative_tokens:
            raise SettingsError(
                f"--estimate {file} is of {tokens} draft tokens a step and this run of {num_speculative_tokens}: give "
                "the same --num-speculative-tokens to both"
            )
        names = [name for name, draft in drafts.items() if _is_of(report, draft)]
        if not names:
            raise SettingsError(
                f"--estimate {file} is of {report['draft']}, which is none of the drafts: give its --draft"
            )
        found |= {name: (file, float(report["acceptance_length"])) for name in names}
    return found


def _is_of(report: Mapping[str, Any], draft: Draft) -> bool:
    if "draft_sha256" in report:
        return bool(report["draft_sha256"] == draft.weights_sha256)
    return Path(report["draft"]).resolve() == draft.folder.resolve()


def _read(file: Path) -> dict[str, Any]:
    try:
        report = json.loads(file.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}; give the estimate stage's estimate.json") from error
    except ValueError as error:
        raise InputError(f"{file} is not JSON: {error}; run the estimate stage again") from error
    wanted: dict[str, Any] = {"acceptance_length": (int, float), "num_speculative_tokens": int, "draft": str}
    for name, kind in wanted.items():
        if not isinstance(report, dict) or not isinstance(report.get(name), kind):
            raise InputError(f"{file} has no {name}: give the estimate stage's estimate.json")
    return dict(report)
