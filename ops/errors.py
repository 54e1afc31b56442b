"""Errors a user can cause on the host side: one line each, each with its own exit code.

The table of codes is in docs/architecture.md. This module needs only the standard library: the patch
tool runs in image builds.
"""

from __future__ import annotations


class UserError(Exception):
    """What is wrong, where, and what to do, in one line; `exit_code` is the process's."""

    exit_code = 1


class StackError(UserError):
    """The stack is unknown, or its stack.toml is wrong."""

    exit_code = 20


class LockError(UserError):
    """A lock is missing or older than the stack.toml it was made from."""

    exit_code = 21


class InstallError(UserError):
    """An environment could not be installed."""

    exit_code = 22


class NotAtIndexError(UserError):
    """The nightly, wheel or index asked for does not exist."""

    exit_code = 23


class ChecksumError(UserError):
    """A file's sha256 is not the pinned one."""

    exit_code = 24


class TruncatedError(UserError):
    """A download ended before all its bytes had come."""

    exit_code = 25


class DiskSpaceError(UserError):
    """Too little free disk space for what is about to be written."""

    exit_code = 26


class PythonError(UserError):
    """No Python that the stack can use."""

    exit_code = 27


class DoctorError(UserError):
    """Something the main job needs is missing on this machine."""

    exit_code = 30
