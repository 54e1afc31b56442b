"""Which checkpoints a run keeps: the last few, the best, and the untrained one to compare with."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from pipeline.errors import CheckpointError
from pipeline.files import sync
from pipeline.train.checkpoint import name_of

FOLDER = "checkpoints"
BEST, UNTRAINED = "best", "untrained"


class Kept:
    """The checkpoints of one output folder."""

    def __init__(self, output: Path, keep: int) -> None:
        """Look at them; nothing is changed.

        Args:
            output: the run's folder.
            keep: how many of the last ones to keep.
        """
        self._output, self._keep = output, keep
        self.folder = output / FOLDER

    def steps(self) -> list[int]:
        """Of every checkpoint there is, in order."""
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        return sorted(int(name[5:]) for name in names if re.fullmatch(r"step-\d{8,}", name))

    def path(self, step: int) -> Path:
        """Where the checkpoint after so many steps is."""
        return self.folder / name_of(step)

    def last(self) -> Path | None:
        """The newest checkpoint."""
        return self.path(steps[-1]) if (steps := self.steps()) else None

    def tidy(self, best: int | None) -> None:
        """Name the best and the untrained one, and remove what is not kept, half-written ones too.

        Args:
            best: step of the best checkpoint; None: none was measured yet.

        Raises:
            CheckpointError: the best or the untrained checkpoint is gone.
        """
        steps = self.steps()
        for name, step in ((UNTRAINED, 0), (BEST, best)):
            if step is not None:
                if step not in steps:
                    raise CheckpointError(
                        f"{self.path(step)} is gone, the run's {name} checkpoint: start anew elsewhere"
                    )
                self._link(name, step)
        for step in set(steps) - set(steps[-self._keep :]) - {0, best}:
            self._remove(self.path(step))
        for half in self.folder.glob(".step-*"):
            self._remove(half)

    def _link(self, name: str, step: int) -> None:
        link, target = self._output / name, f"{FOLDER}/{name_of(step)}"
        if link.is_symlink() and str(link.readlink()) == target:
            return
        temporary = self._output / f".{name}.tmp"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        temporary.rename(link)
        sync(self._output)

    def _remove(self, folder: Path) -> None:
        """Under another name first, so that one that is half removed is none."""
        hidden = folder.with_name(f".{folder.name.lstrip('.')}.gone")
        if folder != hidden:
            folder.rename(hidden)
        shutil.rmtree(hidden)
