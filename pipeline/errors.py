"""Errors a user can cause in a stage: one line each, each with its own exit code.

The table of codes is in docs/architecture.md.
"""

from __future__ import annotations


class UserError(Exception):
    """What is wrong, where, and what to do, in one line; `exit_code` is the process's."""

    exit_code = 1


class SettingsError(UserError):
    """Settings that cannot be honoured."""

    exit_code = 40


class InputError(UserError):
    """An input is missing or cannot be read."""

    exit_code = 41


class NoSamplesError(UserError):
    """Nothing usable is left after bad samples were rejected."""

    exit_code = 42


class NoSpaceError(UserError):
    """The output will not fit on the disk."""

    exit_code = 43


class StoreMismatchError(UserError):
    """The store was made with other data or settings."""

    exit_code = 44


class StoreDamagedError(UserError):
    """A file of the store is missing or not what its checksum says."""

    exit_code = 45


class DisagreementError(UserError):
    """States differ from the independent reference by more than the bound."""

    exit_code = 46


class EngineError(UserError):
    """The engine failed."""

    exit_code = 47


class AccountError(UserError):
    """Captured plus rejected is not the number of input samples."""

    exit_code = 48


class StoreBusyError(UserError):
    """Another run holds this store."""

    exit_code = 49


class FitError(UserError):
    """Store, target, draft or vocabulary do not fit each other."""

    exit_code = 60


class CheckpointError(UserError):
    """A checkpoint is missing a file, or a file is not what was written."""

    exit_code = 61


class WorkerError(UserError):
    """A process that shares the work ended by itself."""

    exit_code = 64


class ExportError(UserError):
    """An exported draft would not load where it is meant to be served."""

    exit_code = 62
