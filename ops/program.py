"""What `./eyas` runs: invoke, with this project's exit codes.

invoke leaves a task's exception as a traceback, exits 1 on a wrong command line and 1 on Ctrl-C; here a UserError is
one line with its own code, a wrong command line is 2 and Ctrl-C 130.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import invoke

from ops.errors import DiskSpaceError, InstallError, UserError

VERSION = "0.1.0"
DISK_TROUBLE: dict[int | None, type[UserError]] = {
    errno.ENOSPC: DiskSpaceError,
    errno.EDQUOT: DiskSpaceError,
    errno.EACCES: InstallError,
    errno.EROFS: InstallError,
}


@contextmanager
def _usage_errors(argv: list[str]) -> Iterator[None]:
    try:
        yield
    except invoke.ParseError as error:
        hint = " (several layers are one value here: --layer-ids '2 30 58 60')" if "--layer-ids" in argv else ""
        raise invoke.Exit(f"eyas: {error}{hint}; see ./eyas --list and ./eyas --help COMMAND", code=2) from error


class Program(invoke.Program):
    """invoke's program, its failures turned into one line and an exit code."""

    def parse_core(self, argv: list[str] | None) -> None:
        """Parse what stands before the first command."""
        with _usage_errors(sys.argv):
            super().parse_core(argv)

    def parse_tasks(self) -> None:
        """Parse the commands and their flags."""
        with _usage_errors(sys.argv):
            super().parse_tasks()

    def parse_cleanup(self) -> None:
        """Answer --list and --help, or refuse a command that is not there."""
        with _usage_errors(sys.argv):
            super().parse_cleanup()

    def execute(self) -> None:
        """Run the commands."""
        try:
            super().execute()
            sys.stdout.flush()
        except UserError as error:
            raise invoke.Exit(f"eyas: {error}", code=error.exit_code) from error
        except BrokenPipeError as error:
            # Whoever read our output, such as head, has enough. Python would complain again when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise invoke.Exit(code=128 + signal.SIGPIPE) from error
        except OSError as error:
            if error.errno not in DISK_TROUBLE:
                raise
            kind = DISK_TROUBLE[error.errno]
            raise invoke.Exit(
                f"eyas: {error.filename}: {error.strerror}; free or change that place", code=kind.exit_code
            ) from error
        except KeyboardInterrupt as error:
            raise invoke.Exit("eyas: interrupted", code=130) from error


def run(namespace: invoke.Collection) -> None:
    """Run the command line with the commands of `namespace`; ends the process with its exit code."""
    Program(name="eyas", binary="eyas", version=VERSION, namespace=namespace).run()
