"""Several processes: torchrun on this machine, each process running the same command."""

from __future__ import annotations

import subprocess
import sys

from pipeline.errors import EngineError

_INTERRUPTED = 130


def launch(argv: list[str], processes: int) -> None:
    """Run the stage in so many processes and wait for them.

    Args:
        argv: the stage's flags.
        processes: how many.

    Raises:
        EngineError: one of them failed; what it printed says why.
        KeyboardInterrupt: they were interrupted.
    """
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    # Without "--" torchrun takes some of the stage's flags for abbreviations of its own.
    command = [sys.executable, *torchrun, "--module", "--", "pipeline", "train", *argv]
    child = subprocess.Popen(command)
    try:
        code = child.wait()
    except KeyboardInterrupt:
        child.wait()  # Ctrl-C reached it, too: it writes a checkpoint
        raise
    if code == _INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        raise EngineError(f"training in {processes} processes failed (exit code {code}): see above; run again to go on")
