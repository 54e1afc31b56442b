"""Everything a run decides before the target is loaded. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.errors import SettingsError
from pipeline.extract.target import Target, locate_target, read_target
from pipeline.prepare.source import check_sources
from pipeline.regenerate.rows import rows_of
from pipeline.regenerate.settings import RegenerateSettings

LONGEST_BY_DEFAULT = 4096
"""Tokens of prompt and answer where `--max-model-len` is not given: twice what `prepare` cuts samples to by default."""
UNIT_BATCHES = 4
"""A unit has as many rows as four batches. More rows waste less where its last answers are written by few at a time,
fewer are lost by a kill."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run, settled.

    Attributes:
        settings: as given.
        target: its folder and shape.
        max_model_len: most tokens of prompt and answer.
        rows: of the input.
    """

    settings: RegenerateSettings
    target: Target
    max_model_len: int
    rows: int

    @property
    def dtype(self) -> str:
        """What the target computes in."""
        return self.target.computing_dtype(self.settings.dtype)

    @property
    def unit_rows(self) -> int:
        """Rows of every unit but the last, which may have fewer."""
        return UNIT_BATCHES * self.settings.batch_size

    def units(self) -> Iterator[tuple[int, int]]:
        """Each unit's number and how many rows it has."""
        for number, start in enumerate(range(0, self.rows, self.unit_rows)):
            yield number, min(self.unit_rows, self.rows - start)


def settle(settings: RegenerateSettings) -> Job:
    """Look at the target and count the rows.

    Raises:
        InputError: target or input cannot be read.
        SettingsError: a length that the target does not have, or input files of one name.
    """
    check_sources(settings.input)
    target = read_target(locate_target(settings.model_path, config_only=False))
    rows = sum(1 for _ in rows_of(settings.input, settings.limit))
    return Job(settings=settings, target=target, max_model_len=_max_model_len(settings, target), rows=rows)


def _max_model_len(settings: RegenerateSettings, target: Target) -> int:
    positions = target.max_positions
    if settings.max_model_len is None:
        return min(LONGEST_BY_DEFAULT, positions or LONGEST_BY_DEFAULT)
    if positions is not None and settings.max_model_len > positions:
        raise SettingsError(
            f"--max-model-len {settings.max_model_len} is more than the {positions} positions of the target at "
            f"{target.folder}; use at most that"
        )
    return settings.max_model_len
