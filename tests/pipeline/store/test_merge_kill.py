"""A merge, split or prune that is killed at any moment leaves no complete store, and goes on when run again."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

import pipeline.store.derive.rewrite  # noqa: F401 - imported before the forks, once
from pipeline.store.derive.merge import merge
from pipeline.store.derive.split import split_ids
from pipeline.store.manifest import is_complete
from tests.pipeline.store.derived import faults, make, names, write_ids
from tests.pipeline.store.fake import contents
from tests.pipeline.store.killing import killed

KILLS = 15
LINES = 1500
"""Executed by a merge or a split from its first look at the new folder, all threads together."""


@pytest.mark.parametrize("how", ["merge", "split"])
def test_killed_and_run_again_it_is_what_it_is_without_a_kill(tmp_path: Path, how: str) -> None:
    one = make(tmp_path / "a", [[2 * unit, 2 * unit + 1] for unit in range(4)], data="a")
    two = make(tmp_path / "b", [[2 * unit, 2 * unit + 1] for unit in range(4, 8)], data="b")
    file = write_ids(tmp_path, *names(0, 2, 4, 6, 7))

    def work(folder: Path) -> None:
        merge(folder / "with", [one, two]) if how == "merge" else split_ids(one, file, folder)

    work(tmp_path / "whole")
    rng, kills, progress = random.Random(how), 0, set[int]()  # noqa: S311 - not for secrets
    folder = tmp_path / "killed"
    while not (is_complete(folder / "with") and is_complete(folder / ("with" if how == "merge" else "without"))):
        kills += killed(lambda: work(folder), rng.randrange(1, LINES) if kills < KILLS else sys.maxsize)
        progress.add(len(list(folder.glob("*/shards/*.json"))))
        for store in folder.glob("*/manifest.json"):
            assert not is_complete(store.parent) or faults(store.parent) == []
    assert kills > 3
    assert contents(folder) == contents(tmp_path / "whole")
