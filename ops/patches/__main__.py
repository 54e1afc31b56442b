"""`python -m ops.patches apply|status|verify --series DIR --site-packages DIR`, standard library only."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ops.errors import UserError
from ops.patches.apply import apply
from ops.patches.status import status
from ops.patches.verify import verify

_COMMANDS = {"apply": apply, "status": status, "verify": verify}


def main(argv: list[str]) -> int:
    """Run one command and print its report.

    Args:
        argv: the command and its flags.

    Returns:
        The process's exit code; see docs/architecture.md.
    """
    parser = argparse.ArgumentParser(prog="python -m ops.patches", description="Patch an installed package, strictly.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (
        ("apply", "apply the series; all files change or none"),
        ("status", "say what state the package is in"),
        ("verify", "exit 0 only if the series is applied, whole and true"),
    ):
        command = commands.add_parser(name, help=what, description=what)
        command.add_argument("--series", type=Path, required=True, help="the folder patches/<package>-<version>")
        command.add_argument("--site-packages", type=Path, required=True, help="the folder it is installed in")
    flags = parser.parse_args(argv)
    try:
        print(_COMMANDS[flags.command](flags.series, flags.site_packages))
    except UserError as error:
        print(f"eyas: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("eyas: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
