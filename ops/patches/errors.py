"""What can be wrong with a series or with the package it is for. The codes are those of docs/architecture.md."""

from __future__ import annotations

from ops.errors import UserError


class WrongVersionError(UserError):
    """The package is installed in another version than the series is for."""

    exit_code = 10


class UpstreamChangedError(UserError):
    """A file is neither upstream's nor the patched one."""

    exit_code = 11


class DoesNotFitError(UserError):
    """A hunk does not match at its line, or the outcome is not the recorded one."""

    exit_code = 12


class PartlyAppliedError(UserError):
    """Some of what the series changes is in place and some is not."""

    exit_code = 13


class AlreadyAppliedError(UserError):
    """Nothing to do: every file is as the series leaves it."""

    exit_code = 14


class MalformedSeriesError(UserError):
    """The series and its folder disagree, or a patch or its header cannot be read."""

    exit_code = 15


class EscapesPackageError(UserError):
    """A path leads outside the package the series is for."""

    exit_code = 16


class PackageNotFoundError(UserError):
    """The package is not installed where it was looked for."""

    exit_code = 17
