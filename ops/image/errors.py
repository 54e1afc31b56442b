"""Errors of images a user can cause or meet; codes are listed in docs/architecture.md."""

from __future__ import annotations

from ops.errors import UserError


class BuildError(UserError):
    """An image could not be built, or two builds of it differ."""

    exit_code = 55


class SmokeError(UserError):
    """An image is not what it says it is."""

    exit_code = 58
