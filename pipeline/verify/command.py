"""`python -m pipeline verify DIR`: is a store what was written, and are its states the target's?"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from pipeline.errors import DisagreementError, InputError, SettingsError, StoreDamagedError
from pipeline.store.layout import store_in
from pipeline.store.reader import StoreReader
from pipeline.verify import bounds
from pipeline.verify.integrity import Integrity, check_integrity
from pipeline.verify.report import headline, show_comparison, show_integrity, write_json

if TYPE_CHECKING:
    from pipeline.verify.compare import Comparison


def main(argv: list[str]) -> int:
    """Run the stage; `--help` tells the flags.

    Returns:
        0 if the store is right in everything that was asked.

    Raises:
        StoreDamagedError: a checksum, shape or count is wrong.
        DisagreementError: states differ from the reference.
        UserError: others, see docs/architecture.md.
    """
    flags = _parse(argv)
    store, console = store_in(flags.dir), Console()
    with console.status("reading the store") as status:
        found = check_integrity(store, lambda done, of: status.update(f"unit {done:,} of {of:,}"))
    show_integrity(console, found)
    result: Comparison | None = None
    if flags.reference and not found.faults:
        with console.status("computing samples again") as status:
            result = _compare(store, found, flags, status.update)
        show_comparison(console, result)
    if flags.json:
        write_json(flags.json, found, result)
    if found.faults:
        raise StoreDamagedError(_damage(store, found))
    if result and result.faults:
        raise DisagreementError(f"{store} is not what the target computes: {headline(result)}")
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline verify",
        description="Check a store: checksums and counts; with --reference also the states, against transformers.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("dir", type=Path, metavar="DIR", help="a store, or a run's folder with store/ in it")
    add("--reference", action="store_true", help="compute samples again with transformers and compare")
    add("--samples", type=int, default=8, help="how many, spread over their lengths (default: %(default)s)")
    add("--model-path", type=Path, help="the target's folder (default: where it was for extract)")
    add("--trust-remote-code", action="store_true", help="run Python code that comes with the checkpoint")
    rtol = "largest relative error of a sample in float32 stores (default: %(default)s); others are held against noise"
    add("--rtol", type=float, default=bounds.FROBENIUS_FLOAT32, help=rtol)
    add("--json", type=Path, metavar="FILE", help="write all figures and faults there")
    flags = parser.parse_args(argv)
    if flags.samples < 1:
        raise SettingsError(f"--samples must be at least 1, not {flags.samples}")
    if not (math.isfinite(flags.rtol) and flags.rtol > 0):
        raise SettingsError(f"--rtol must be above 0, not {flags.rtol}")
    return flags


def _compare(store: Path, found: Integrity, flags: argparse.Namespace, progress: Callable[[str], None]) -> Comparison:
    from pipeline.verify.compare import compare  # imports transformers, which checksums need not

    noted = found.manifest["info"].get("model_path")
    if flags.model_path is None and noted is None:
        raise InputError(f"{store} does not say where its target is: give it with --model-path")
    return compare(
        StoreReader(store),
        model_path=flags.model_path or Path(noted),
        count=flags.samples,
        rtol=flags.rtol,
        trust_remote_code=flags.trust_remote_code,
        progress=progress,
    )


def _damage(store: Path, found: Integrity) -> str:
    more = f" (and {len(found.faults) - 1} more)" if len(found.faults) > 1 else ""
    return f"{store} is not sound: {found.faults[0]}{more}; remove the files named and run extract again to redo them"
