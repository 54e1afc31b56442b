"""How many tests passed, failed and were skipped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree


@dataclass(frozen=True)
class Counts:
    """Outcomes of a part of the tests, or of all."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def read_report(report: Path) -> Counts:
    """Outcomes of a JUnit XML report; none where there is no whole one, as after a breakdown or on a full disk."""
    try:
        root = ElementTree.parse(report).getroot()  # noqa: S314 - pytest has just written it
    except (FileNotFoundError, ElementTree.ParseError):
        return Counts()
    total = Counts()
    for suite in root.iter("testsuite"):
        number = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
        failed = number["failures"] + number["errors"]
        total += Counts(number["tests"] - failed - number["skipped"], failed, number["skipped"])
    return total


def judge(counts: Counts, exit_code: int, *, may_be_empty: bool = False, may_be_skipped: bool = False) -> Counts:
    """The counts of a part, with a failure more where they hide one.

    Args:
        counts: what the report says.
        exit_code: pytest's; 5 is "no test ran".
        may_be_empty: whether a part with no test in it is right.
        may_be_skipped: whether a part whose tests were all skipped is right.
    """
    if counts == Counts() and may_be_empty and exit_code == 5:
        return counts
    if counts == Counts(skipped=counts.skipped) and counts.skipped and may_be_skipped and exit_code == 0:
        return counts
    # pytest that broke down after tests that passed, and a part in which nothing ran, are failures.
    hidden = counts.failed == 0 and (exit_code != 0 or counts.passed == 0)
    return counts + Counts(failed=int(hidden))
