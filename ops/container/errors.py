"""What can go wrong with containers; docs/architecture.md has the table of codes."""

from __future__ import annotations

from ops.errors import UserError


class RuntimeFlagError(UserError):
    """A flag of a container or an image, or its variable, with a value that means nothing."""

    exit_code = 2


class NoEngineError(UserError):
    """No Docker engine answers: not installed, or not running."""

    exit_code = 50


class EngineAccessError(UserError):
    """The engine is there, but this user may not talk to it."""

    exit_code = 51


class ImageMissingError(UserError):
    """The engine does not have the image."""

    exit_code = 52


class ImageOldError(UserError):
    """The image was built from another state of the checkout."""

    exit_code = 53


class GpuError(UserError):
    """The GPUs asked for cannot be used."""

    exit_code = 54


class StartError(UserError):
    """The container could not start: a mount, the disk or /dev/shm."""

    exit_code = 56


class LostError(UserError):
    """The engine went away, or the container was killed, while a stage ran."""

    exit_code = 57
