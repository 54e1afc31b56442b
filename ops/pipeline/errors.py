"""What can go wrong with a pipeline; the stages' codes where it is the same trouble (docs/architecture.md)."""

from __future__ import annotations

from ops.errors import UserError


class RecipeError(UserError):
    """A recipe is not TOML, or a key or a value in it means nothing; so does a flag of the pipeline itself."""

    exit_code = 40


class MissingInputError(UserError):
    """Something that a step reads is missing or unreadable."""

    exit_code = 41


class HeldError(UserError):
    """Another pipeline works in this run folder."""

    exit_code = 49


class FactsError(UserError):
    """The recipe and the target's own config.json say different things about the target."""

    exit_code = 60


class ExportsDifferError(UserError):
    """The two exports of one draft were not served alike."""

    exit_code = 63
